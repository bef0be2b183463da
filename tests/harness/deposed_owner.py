"""A client that stays with one broker by hand, also when others have its topics by now."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from http.client import HTTPException

from fronted_broker import FrontedBroker
from raw_client import Client, command, entry_of

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, CommandSubscribe, MessageIdData

SUBSCRIPTION = "kept"
LATE = b"late"
"""The body of what is sent when somebody else may have the topic."""
_BEFORE = 3
"""Messages of each topic from the time when the broker had it."""
_SETTLED_SECONDS = 0.5


class DeposedOwner:
    """What is asked of a broker on topics that it had, and what it answers.

    :param topics: persistent ones that it has now, used by nobody else
    :param fleeting: a non-persistent one that it has now
    """

    def __init__(self, broker: FrontedBroker, topics: Sequence[str], fleeting: str) -> None:
        self.topics = topics
        self._broker = broker
        self._fleeting = len(topics)
        self._client = Client(broker.port)
        self._asking: list[threading.Thread] = []
        self.answers: list[int] = []
        """Statuses of what was asked over HTTP when somebody else may have had the topics."""
        self._given: dict[int, list[MessageIdData]] = {}
        for number, topic in enumerate([*topics, fleeting]):
            self._open(number, topic)
        for number in range(len(topics)):
            for sequence_id in range(_BEFORE):
                self._publish(number, sequence_id, b"%d" % sequence_id)
                self._client.take(BaseCommand.SEND_RECEIPT, producer_id=number, sequence_id=sequence_id)
                given = self._client.take(BaseCommand.MESSAGE, consumer_id=number)
                self._given.setdefault(number, []).append(given.message_id)

    def _open(self, number: int, topic: str) -> None:
        self._client.send(
            command(BaseCommand.PRODUCER, topic=topic, producer_id=number, request_id=2 * number)
        )
        self._client.take(BaseCommand.PRODUCER_SUCCESS, 30, request_id=2 * number)
        self._client.send(
            command(
                BaseCommand.SUBSCRIBE,
                topic=topic,
                subscription=SUBSCRIPTION,
                subType=CommandSubscribe.Shared,
                consumer_id=number,
                request_id=2 * number + 1,
                initialPosition=CommandSubscribe.Earliest,
            )
        )
        self._client.take(BaseCommand.SUCCESS, 30, request_id=2 * number + 1)
        self._client.send(command(BaseCommand.FLOW, consumer_id=number, messagePermits=100))

    def _publish(self, number: int, sequence_id: int, body: bytes) -> None:
        send = command(BaseCommand.SEND, producer_id=number, sequence_id=sequence_id, num_messages=1)
        self._client.send(send, entry_of(body, sequence_id))

    @property
    def before(self) -> list[bytes]:
        """The bodies in each topic that have receipts."""
        return [b"%d" % number for number in range(_BEFORE)]

    def ask_for_more(self, *, receipts: bool = True) -> None:
        """Publishes, acknowledges and makes subscriptions, without waiting for answers.

        :param receipts: whether acknowledgements ask for one; it says that the broker knows of them
        """
        with contextlib.suppress(OSError):
            # A broker that has hung up answers nothing.
            for number, given in self._given.items():
                self._publish(number, _BEFORE, LATE)
                for kind, ids in ((CommandAck.Individual, given[:1]), (CommandAck.Cumulative, given[-1:])):
                    wanted = {"request_id": 1000 + 2 * number + kind} if receipts else {}
                    self._client.send(
                        command(BaseCommand.ACK, consumer_id=number, ack_type=kind, message_id=ids, **wanted)
                    )
        for topic in self.topics:
            self._asking.append(threading.Thread(target=self._make_subscription, args=(topic,)))
            self._asking[-1].start()

    def _make_subscription(self, topic: str) -> None:
        path = topic.removeprefix("persistent://")
        # No answer is as good as a refusal.
        with contextlib.suppress(OSError, HTTPException):
            status, _ = self._broker.ask("PUT", f"/admin/v2/persistent/{path}/subscription/late")
            self.answers.append(status)

    def check_nothing_was_granted(self, within_seconds: float) -> None:
        """:param within_seconds: as long as it may take the broker to know that it owns nothing any more;
        it may pass non-persistent messages on as long
        """
        end = time.monotonic() + within_seconds
        closed = False
        while not closed and time.monotonic() < end:
            closed = self._drained(0.1)
        if not closed:
            with contextlib.suppress(OSError):
                self._publish(self._fleeting, _BEFORE, LATE)
            self._drained(_SETTLED_SECONDS)
        for thread in self._asking:
            thread.join(60)
            assert not thread.is_alive()
        for found, entry in self._client.kept:
            assert found.type != BaseCommand.SEND_RECEIPT, found
            if found.type == BaseCommand.MESSAGE:
                assert not entry.endswith(LATE), found
            if found.type == BaseCommand.ACK_RESPONSE:
                assert found.ackResponse.HasField("error"), found
        assert not [status for status in self.answers if status < 300], self.answers

    def _drained(self, seconds: float) -> bool:
        """Takes what arrives; whether the broker has hung up."""
        try:
            self._client.take(BaseCommand.AUTH_CHALLENGE, seconds)
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    def close(self) -> None:
        self._client.close()
