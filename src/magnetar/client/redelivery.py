"""Redelivery requests of a consumer."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.client.acknowledging import Acknowledgements, NegativeAcknowledgements
from magnetar.client.attachment import Attachment
from magnetar.client.consumer_commands import ConsumerCommands
from magnetar.client.options import ConsumerOptions
from magnetar.client.receiver_queue import ReceiverQueue
from magnetar.client.receiving import Position, Taken
from magnetar.client.wire import ConsumerEnd
from magnetar.io.interfaces import Loop


class Redelivery:
    """Requests the redelivery of messages of one consumer."""

    def __init__(
        self,
        loop: Loop,
        attachment: Attachment[ConsumerEnd],
        options: ConsumerOptions,
        commands: ConsumerCommands,
        *,
        queue: ReceiverQueue,
        taken: Taken,
        acks: Acknowledgements,
    ) -> None:
        self._attachment = attachment
        self._shared = options.is_shared
        self._commands = commands
        self._queue = queue
        self._taken = taken
        self._acks = acks
        self._loop = loop
        self._delay = options.negative_ack_redelivery_delay_ms / 1000
        self._backoff = options.negative_ack_redelivery_backoff
        self._nacks: dict[float, NegativeAcknowledgements] = {}
        """By delay in seconds: the negative acknowledgements with this delay; with a back-off, there are
        several delays.
        """
        self.refusals = 0
        """Number of negatively acknowledged messages."""
        self.timed_out = 0
        """Number of entries that were not acknowledged in time."""
        self.before_refused: Callable[[list[Position]], object] | None = None
        """Called before the redelivery of negatively acknowledged entries is requested; None: no callback."""
        self.before_late: Callable[[list[Position]], object] | None = None
        """Called before the redelivery of entries that were not acknowledged in time is requested; None: no
        callback.
        """

    def refused(self, position: Position, redeliveries: int) -> None:
        """Requests redelivery of an entry after the delay of negative acknowledgements.

        :param redeliveries: number of earlier redeliveries
        """
        self.refusals += 1
        self._taken.refused(position)
        delay = self._delay if self._backoff is None else self._backoff.seconds(redeliveries)
        waiting = self._nacks.get(delay)
        if waiting is None:
            waiting = self._nacks[delay] = NegativeAcknowledgements(self._loop, delay, self._due)
        waiting.add(position)

    def _due(self, positions: list[Position]) -> None:
        if self.before_refused is not None:
            self.before_refused(positions)
        self.request(positions)

    def late(self, positions: list[Position]) -> None:
        """Requests redelivery of entries that were not acknowledged in time."""
        if self.before_late is not None:
            self.before_late(positions)
        self.timed_out += len(positions)
        self.request(positions)

    def request_all(self) -> None:
        """Requests redelivery of all unacknowledged messages.

        :raises PulsarException: the consumer is closed or has failed permanently
        """
        self._attachment.check_open()
        connection = self._attachment.connection
        if connection is not None:
            self._acks.flush()
            cleared = self._queue.forget()
            self._queue.returned.clear()
            self._taken.forget()
            if not self._shared:
                # Messages that were in transit before the broker rewound have a lower number.
                self._queue.epoch += 1
            connection.wire.send(self._commands.redeliver([], self._queue.epoch))
            # Only after the request, or the broker would continue from its old position.
            self._queue.permits.use(cleared)

    def request(self, positions: list[Position]) -> None:
        """Requests redelivery of entries, except entries that go to the dead letter topic."""
        if self._attachment.closed or self._attachment.failure is not None:
            return
        if not self._shared:
            # Exclusive and Failover subscriptions rewind as a whole.
            self.request_all()
        else:
            self._send(self._taken.without_dead(positions, self._send))

    def _send(self, positions: list[Position]) -> None:
        connection = self._attachment.connection
        if positions and connection is not None:
            connection.wire.send(self._commands.redeliver(self._queue.chunks.all_of(positions), 0))

    def forget(self) -> None:
        """Forgets all messages whose redelivery was to be requested later."""
        for waiting in self._nacks.values():
            waiting.forget()
        self._taken.forget()
