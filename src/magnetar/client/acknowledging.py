"""Acknowledgements and negative acknowledgements of a consumer."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable

from magnetar.client.chunks import Chunks
from magnetar.client.connection import Connection
from magnetar.client.exceptions import NotConnected, PulsarException, server_exception
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions
from magnetar.client.receiving import Taken
from magnetar.io.interfaces import Cancellable, Future, Loop
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import fail, settle
from magnetar.protocol.hot_client_encode import encode_acks
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageIdData

_INDIVIDUAL = 0
_CUMULATIVE = 1
_U64 = 2**64


class Acknowledgements:
    """Collects acknowledgements, and sends them together after ``ack_group_time_ms``, or at
    ``ack_group_size``.
    """

    def __init__(
        self,
        loop: Loop,
        consumer_id: int,
        connection: Callable[[], Connection | None],
        options: ConsumerOptions,
        *,
        timeout: float,
        taken: Taken | None = None,
    ) -> None:
        """:param timeout: time-out of the broker's answers, in seconds, if receipts are enabled

        :param taken: the acknowledgement time-out and the dead letters of the consumer, which get the id of
            each acknowledged message; None: the consumer has neither
        """
        self._loop = loop
        self._tasks = TaskScope(loop, "acknowledgements", owner_goes_on)
        self._consumer_id = consumer_id
        self._connection = connection
        self._seconds = options.ack_group_time_ms / 1000
        self._size = options.ack_group_size
        self._batch_index = options.batch_index_ack_enabled
        self._receipts = options.ack_receipt_enabled
        self._timeout = timeout
        self._taken = taken if taken is not None and taken.matters else None
        self._ledgers = array("q")
        self._entries = array("q")
        self._partial: dict[tuple[int, int], int] = {}
        self._remaining: dict[tuple[int, int], int] = {}
        self._waiting: list[Future[None]] = []
        self._timer: Cancellable | None = None
        self.sent = 0
        """Number of acknowledged messages; the messages of a batch are counted when all of them are
        acknowledged, and a cumulative acknowledgement counts as one.
        """
        self.failed = 0
        """Number of acknowledgements that were not sent, or that the broker refused or did not answer. They
        are counted only if an answer is awaited: with receipts, or in a transaction.
        """

    def individual(self, message_id: MessageId) -> Future[None] | None:
        """Acknowledges one message or one entry; returns a future of the broker's answer.

        :returns: the future; None: receipts are off, or nothing is sent before the rest of the batch is
            acknowledged
        """
        if self._taken is not None:
            self._taken.acknowledged(message_id)
        position, index = message_id.position, message_id.batch_index()
        if index < 0:
            self.sent += 1
            return self._entry_done(position)
        return self._of_batch(position, 1 << index, max(message_id.batch_size(), index + 1))

    def with_chunks(self, message_id: MessageId, chunks: Chunks) -> Future[None] | None:
        """Acknowledges like :meth:`individual`; of a chunked message, all chunks."""
        if chunks.are_delivered:
            for position in chunks.acknowledged(message_id.position):
                self.entry(position)
        return self.individual(message_id)

    def runs(self, runs: Iterable[tuple[int, int, int, int, int]]) -> None:
        """Acknowledges runs of messages, as :func:`runs_of` returns them; only for consumers that wait for no
        receipts and have no interceptors.
        """
        for ledger_id, entry_id, first, last, size in runs:
            if first >= 0:
                done = (1 << (last + 1)) - (1 << first)
                self._of_batch((ledger_id, entry_id), done, max(size, last + 1))
                continue
            self.sent += last + 1 - entry_id
            for begin in range(entry_id, last + 1, self._size):
                part = range(begin, min(begin + self._size, last + 1))
                self._ledgers.extend([ledger_id] * len(part))
                self._entries.extend(part)
                self._gathered()

    def _of_batch(self, position: tuple[int, int], done: int, size: int) -> Future[None] | None:
        """Acknowledges messages of a batch; returns the same as :meth:`individual`.

        :param done: bit set of the acknowledged messages, by their indexes in the batch
        :param size: number of messages of the batch
        """
        remaining = self._remaining.get(position)
        if remaining is None:
            remaining = (1 << size) - 1
        remaining &= ~done
        if remaining == 0:
            self._remaining.pop(position, None)
            self._partial.pop(position, None)
            self.sent += size
            return self._entry_done(position)
        self._remaining[position] = remaining
        if not self._batch_index:
            return None
        self._partial[position] = remaining
        return self._gathered()

    def entry(self, position: tuple[int, int]) -> None:
        """Acknowledges an entry that is not delivered as a message of its own, such as a chunk before the
        last chunk.
        """
        self.individual(MessageId(-1, *position))

    def known(self, position: tuple[int, int], size: int, ack_set: tuple[int, ...]) -> None:
        """Records which messages of a batch the broker already knows as acknowledged.

        :param ack_set: bit set in 64-bit words, in which the bits of acknowledged messages are 0
        """
        bits = sum((word % _U64) << (64 * index) for index, word in enumerate(ack_set))
        self._remaining[position] = bits & ((1 << size) - 1)

    def remaining(self, position: tuple[int, int], size: int) -> int:
        """Returns a bit set of the messages of a batch that are not acknowledged yet; an acknowledgement in a
        transaction does not count before the commit.

        :param size: number of messages of the batch
        """
        return self._remaining.get(position, (1 << size) - 1)

    def done_elsewhere(self, position: tuple[int, int], done: int, size: int) -> None:
        """Records that a transaction, which is now committed, has acknowledged messages of a batch.

        :param done: bit set of these messages
        :param size: number of messages of the batch
        """
        remaining = self.remaining(position, size) & ~done
        if remaining:
            self._remaining[position] = remaining
        elif self._remaining.pop(position, None) is not None:
            # The broker may not know yet which messages of the batch were acknowledged before.
            self._partial.pop(position, None)
            self._entry_done(position)

    def _entry_done(self, position: tuple[int, int]) -> Future[None] | None:
        if self._taken is not None:
            self._taken.settled(position)
        self._ledgers.append(position[0])
        self._entries.append(position[1])
        return self._gathered()

    def _gathered(self) -> Future[None] | None:
        future = None
        if self._receipts:
            future = self._loop.create_future()
            self._waiting.append(future)
        if self._seconds <= 0 or len(self._ledgers) + len(self._partial) >= self._size:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self.flush)
        return future

    def cumulative(self, message_id: MessageId) -> Future[None] | None:
        """Acknowledges a message and all earlier messages; returns a future of the broker's answer if
        receipts are enabled, else None.
        """
        self.flush()
        self.sent += 1
        last = message_id.batch_index() + 1 >= message_id.batch_size()
        ledger_id, entry_id = message_id.position
        data = MessageIdData(ledgerId=ledger_id % _U64, entryId=entry_id % _U64)
        if message_id.batch_index() >= 0 and not last:
            if self._batch_index:
                size = message_id.batch_size()
                data.ack_set.extend(words(((1 << size) - 1) & (-1 << (message_id.batch_index() + 1))))
            else:
                # Without batch indexes only the entries before this one are completely acknowledged.
                data.entryId = (entry_id - 1) % _U64
        bound = (ledger_id, entry_id if last else entry_id - 1)
        for position in [each for each in self._remaining if each <= bound]:
            del self._remaining[position]
        if self._taken is not None:
            self._taken.settled_until(bound)
        if self._connection() is None:
            # It will be delivered again after the reconnect, and acknowledged then.
            return self._unsent()
        answer = self._send_command(_CUMULATIVE, [data])
        if answer is None:
            return None
        told = self._loop.create_future()
        self._tasks.start(self._pass_on([answer], [told]), "awaiting the broker's answer")
        return told

    def flush(self) -> None:
        """Sends collected acknowledgements. Without a connection, the acknowledgements are dropped,
        because the broker delivers the messages again.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ledgers, self._ledgers = self._ledgers, array("q")
        entries, self._entries = self._entries, array("q")
        partial, self._partial = self._partial, {}
        waiting, self._waiting = self._waiting, []
        connection = self._connection()
        if connection is None:
            self._tell(waiting, NotConnected("not connected: the messages will be delivered again"))
            return
        answers: list[Future[BaseCommand]] = []
        if ledgers:
            request_id = connection.wire.new_request_id() if self._receipts else -1
            if self._receipts:
                answers.append(connection.expect(request_id, self._timeout, "ACK"))
            connection.send(
                encode_acks(self._consumer_id, _INDIVIDUAL, ledgers, entries, 0, len(ledgers), request_id)
            )
        if partial:
            ids = [
                MessageIdData(ledgerId=ledger % _U64, entryId=entry % _U64, ack_set=words(bits))
                for (ledger, entry), bits in partial.items()
            ]
            answer = self._send_command(_INDIVIDUAL, ids)
            if answer is not None:
                answers.append(answer)
        if self._receipts and waiting:
            self._tasks.start(self._pass_on(answers, waiting), "awaiting the broker's answers")

    def _unsent(self) -> Future[None] | None:
        if not self._receipts:
            return None
        future = self._loop.create_future()
        future.set_exception(NotConnected("not connected: the messages will be delivered again"))
        return future

    def _send_command(self, ack_type: int, ids: list[MessageIdData]) -> Future[BaseCommand] | None:
        connection = self._connection()
        assert connection is not None
        command = BaseCommand(type=BaseCommand.ACK)
        command.ack.consumer_id = self._consumer_id
        command.ack.ack_type = ack_type  # type: ignore[assignment]
        command.ack.message_id.extend(ids)
        if not self._receipts:
            connection.wire.send(command)
            return None
        command.ack.request_id = connection.wire.new_request_id()
        return connection.ask(command.ack.request_id, command, self._timeout)

    def forget(self) -> None:
        """Drops collected and partial acknowledgements, because the subscription restarts at another
        position.
        """
        waiting, self._waiting = self._waiting, []
        self._tell(waiting, NotConnected("the messages will be delivered again"))
        self._remaining.clear()
        self._partial.clear()
        del self._ledgers[:]
        del self._entries[:]

    def close(self) -> None:
        self.flush()

    async def _pass_on(self, answers: list[Future[BaseCommand]], waiting: list[Future[None]]) -> None:
        """Passes the broker's answers on to the waiting callers."""
        failure: PulsarException | None = None
        for answer in answers:
            try:
                response = (await answer).ackResponse
                if response.HasField("error"):
                    failure = server_exception(response.error, response.message)
            except PulsarException as error:
                failure = error
        self._tell(waiting, failure)

    def _tell(self, waiting: list[Future[None]], error: PulsarException | None) -> None:
        if error is not None:
            self.failed += len(waiting)
        for future in waiting:
            if error is None:
                settle(future)
            else:
                fail(future, error)


def words(bits: int) -> list[int]:
    """Returns a bit set as signed 64-bit words, the lowest bits first."""
    words = []
    while bits:
        word = bits & (_U64 - 1)
        words.append(word - _U64 if word >= _U64 // 2 else word)
        bits >>= 64
    return words


class NegativeAcknowledgements:
    """Requests redelivery of messages after a delay."""

    def __init__(
        self, loop: Loop, delay: float, redeliver: Callable[[list[tuple[int, int]]], object]
    ) -> None:
        """:param delay: delay between :meth:`add` and the request, in seconds

        :param redeliver: requests redelivery of the entries at these positions
        """
        self._loop = loop
        self._delay = delay
        self._redeliver = redeliver
        self._waiting: deque[tuple[float, tuple[int, int]]] = deque()
        self._timer: Cancellable | None = None

    def add(self, position: tuple[int, int]) -> None:
        self._waiting.append((self._loop.time() + self._delay, position))
        if self._timer is None:
            self._timer = self._loop.call_later(self._delay, self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._loop.time() + 0.0005
        positions: dict[tuple[int, int], None] = {}
        while self._waiting and self._waiting[0][0] <= now:
            positions[self._waiting.popleft()[1]] = None
        if positions:
            self._redeliver(list(positions))
        if self._waiting:
            self._timer = self._loop.call_later(self._waiting[0][0] - self._loop.time(), self._due)

    def forget(self) -> None:
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
