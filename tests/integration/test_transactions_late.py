"""Messages and acknowledgements that arrive after the end of their transaction, where no further end reaches
the topic."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from raw_client import entry_of
from raw_transactions import Transactions, transactional

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe
from magnetar.testing import Broker

TOPIC = "persistent://public/default/late"
MINUTE = 60_000


class _Talk(Transactions):
    def __init__(self, broker: Broker) -> None:
        port = urlsplit(broker.service_url).port
        assert port is not None
        super().__init__(port)
        self.producer = self.client.produce(TOPIC)[0]
        self.consumer = self.client.subscribe(TOPIC, "s", permits=100)

    def publish(self, payload: bytes, sequence: int, least: int | None = None) -> None:
        """Publishes a message, whether or not its coordinator knows that its transaction publishes here."""
        ids = {} if least is None else {"txnid_most_bits": 0, "txnid_least_bits": least}
        entry = entry_of(payload, sequence) if least is None else transactional(payload, (0, least), sequence)
        self.client.publish(self.producer, sequence, entry, **ids)
        self.client.take(BaseCommand.SEND_RECEIPT, producer_id=self.producer, sequence_id=sequence)

    def nothing_comes(self) -> None:
        with pytest.raises(TimeoutError):
            self.client.message(self.consumer, 0.3)


@pytest.mark.broker(settings={"transactionCoordinatorEnabled": "true"})
@pytest.mark.parametrize("commit", [False, True])
def test_a_topic_that_was_loaded_after_the_end_does_not_hide_messages_for_ever(
    broker: Broker, commit: bool
) -> None:
    talk = _Talk(broker)
    talk.begin(60 * MINUTE)  # An older one that is open for long.
    ended, still_open = talk.begin(), talk.begin(10 * MINUTE)
    talk.add(ended, TOPIC)
    talk.end(ended, commit=commit)
    talk.client.close()
    broker.restart()
    talk = _Talk(broker)
    talk.publish(b"late", 0, ended)
    talk.publish(b"plain", 1)
    talk.publish(b"in time", 2, still_open)
    talk.publish(b"behind", 3)
    talk.nothing_comes()
    broker.advance(minutes=1)
    assert talk.client.message(talk.consumer)[1] == b"plain"
    talk.nothing_comes()
    assert "aborting messages that a transaction published after its end" in broker.log
    # Nobody has told the coordinator of this topic.
    broker.advance(minutes=10)
    assert talk.client.message(talk.consumer)[1] == b"behind"
    talk.nothing_comes()
    talk.client.close()


@pytest.mark.broker(settings={"transactionCoordinatorEnabled": "true"})
@pytest.mark.parametrize("commit", [False, True])
@pytest.mark.parametrize("cumulative", [False, True])
def test_what_is_acknowledged_after_the_end_is_delivered_again(
    broker: Broker, commit: bool, cumulative: bool
) -> None:
    talk = _Talk(broker)
    older = talk.begin(60 * MINUTE)
    kind = CommandSubscribe.Failover if cumulative else CommandSubscribe.Shared
    consumer = talk.client.subscribe(TOPIC, "acks", kind, permits=100)
    talk.publish(b"acknowledged in time", 0)
    talk.publish(b"acknowledged late", 1)
    ids = [talk.client.message(consumer)[0].message_id for _ in range(2)]
    talk.add(older, TOPIC, "acks")
    if not cumulative:
        talk.acknowledge(consumer, [ids[0]], older)
    ended = talk.begin()
    talk.add(ended, TOPIC, "acks")
    talk.end(ended, commit=commit)
    talk.acknowledge(consumer, [ids[1]], ended, cumulative=cumulative)
    with pytest.raises(TimeoutError):
        talk.client.message(consumer, 0.3)
    broker.advance(minutes=1)
    again = [talk.client.message(consumer)[1] for _ in range(2 if cumulative else 1)]
    assert again == [b"acknowledged in time", b"acknowledged late"][-len(again) :]
    with pytest.raises(TimeoutError):
        talk.client.message(consumer, 0.3)
    talk.client.close()
