"""Each defect that the fuzzer found, as the shortest conversation that shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fuzz_broker import FuzzedBroker, framed
from fuzz_cases import CASE_SECONDS, alarm
from fuzz_wire import frame

from magnetar.io.waiting import finished
from magnetar.ledger.interface import NoSuchLedger
from magnetar.managed_ledger.position import Position
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageIdData, MessageMetadata

TOPIC = "persistent://public/default/t"
SHARED, EXCLUSIVE = 1, 0


class Scripted:
    """A client that says what a test wants; ``told`` is what it was answered."""

    def __init__(self, fuzzed: FuzzedBroker) -> None:
        self._fuzzed = fuzzed
        self._requests = 0
        self.told: list[BaseCommand] = []
        self.transport = fuzzed.connect()
        self.transport.told = self.told.append
        self.say("CONNECT", "connect", client_version="scripted", protocol_version=21)

    def say(self, kind: str, field: str, entry: bytes = b"", *, wait: float = 0.5, **fields: Any) -> None:
        command = BaseCommand(type=BaseCommand.Type.Value(kind))
        message = getattr(command, field)
        message.SetInParent()
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(message, name).extend(value)
            elif isinstance(value, MessageIdData):
                getattr(message, name).CopyFrom(value)
            else:
                setattr(message, name, value)
        self.transport.feed(framed(command, entry))
        if wait:
            self._fuzzed.wait(wait)

    def ask(self, kind: str, field: str, **fields: Any) -> None:
        self._requests += 1
        self.say(kind, field, request_id=self._requests, **fields)

    def produce(self, **fields: Any) -> None:
        self.ask("PRODUCER", "producer", topic=TOPIC, producer_id=1, **fields)

    def subscribe(self, kind: int, *, consumer_id: int = 1, name: str = "s", **fields: Any) -> None:
        fields = {"initialPosition": 1, "durable": True} | fields
        self.ask(
            "SUBSCRIBE",
            "subscribe",
            topic=TOPIC,
            subscription=name,
            subType=kind,
            consumer_id=consumer_id,
            **fields,
        )

    def flow(self, permits: int, consumer_id: int = 1) -> None:
        self.say("FLOW", "flow", consumer_id=consumer_id, messagePermits=permits)

    def publish(self, sequence_id: int, batch: int | None = None) -> None:
        metadata = MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)
        if batch is not None:
            metadata.num_messages_in_batch = batch
        send = {"producer_id": 1, "sequence_id": sequence_id, "num_messages": max(1, batch or 1)}
        self.say("SEND", "send", build_entry(metadata, b"payload"), **send)

    def acknowledge(self, ids: list[MessageIdData], *, wait: float = 0.5) -> None:
        self.say("ACK", "ack", consumer_id=1, ack_type=0, message_id=ids, wait=wait)

    def messages(self) -> list[MessageIdData]:
        """Where the messages are that came until now."""
        return [c.message.message_id for c in self.told if c.type == BaseCommand.MESSAGE]

    def answers(self, kind: int) -> list[BaseCommand]:
        return [c for c in self.told if c.type == kind]


@pytest.fixture
def fuzzed() -> Iterator[FuzzedBroker]:
    broker = FuzzedBroker(tight=False)
    yield broker
    broker.check_counts()
    broker.close()


@pytest.fixture
def client(fuzzed: FuzzedBroker) -> Scripted:
    return Scripted(fuzzed)


def in_batch(where: MessageIdData, bits: int, size: int) -> MessageIdData:
    found = MessageIdData(ledgerId=where.ledgerId, entryId=where.entryId, batch_size=size)
    found.ack_set.append(bits)
    return found


def mark_delete(fuzzed: FuzzedBroker, name: str = "s") -> Position:
    return fuzzed.broker.topics.loaded[TOPIC].subscriptions[name].cursor.mark_delete


@pytest.mark.parametrize("batch", [0, -1, -(2**31)])
def test_the_last_message_id_behind_a_batch_of_less_than_one(client: Scripted, batch: int) -> None:
    """The batch index was out of the field's range: the request failed with an internal error."""
    client.produce()
    client.publish(1, batch)
    client.subscribe(EXCLUSIVE)
    client.ask("GET_LAST_MESSAGE_ID", "getLastMessageId", consumer_id=1)
    (answer,) = client.answers(BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE)
    assert answer.getLastMessageIdResponse.last_message_id.batch_index == -1


@pytest.mark.parametrize("kind", [SHARED, EXCLUSIVE])
def test_acknowledging_more_messages_than_a_batch_has_costs_no_permits(client: Scripted, kind: int) -> None:
    """Permits were counted for messages that are not there, and went below zero."""
    client.produce()
    client.publish(1, 2)
    client.publish(2)
    client.subscribe(EXCLUSIVE)
    client.flow(1)
    first = client.messages()[0]
    client.acknowledge([in_batch(first, -2, 1000)])
    client.ask("CLOSE_CONSUMER", "close_consumer", consumer_id=1)
    client.told.clear()
    client.subscribe(kind)
    client.flow(2)
    # One message is left of the batch of two, and one permit for the entry behind it.
    assert [(m.ledgerId, m.entryId) for m in client.messages()] == [(first.ledgerId, 0), (first.ledgerId, 1)]


def test_acknowledging_messages_a_held_batch_does_not_have(fuzzed: FuzzedBroker, client: Scripted) -> None:
    """The consumer held less than no message."""
    client.produce()
    client.publish(1, 3)
    client.subscribe(EXCLUSIVE)
    client.flow(1)
    first = client.messages()[0]
    client.acknowledge([in_batch(first, -2, 64)])
    client.ask("CLOSE_CONSUMER", "close_consumer", consumer_id=1)
    client.subscribe(SHARED)
    client.flow(1)
    client.acknowledge([in_batch(first, 2, 64)])
    fuzzed.check_counts()


def test_a_batch_of_two_thousand_million_messages_costs_no_memory(
    fuzzed: FuzzedBroker, client: Scripted
) -> None:
    """A bit for each was made when one of them was acknowledged: 256 MB, and again for each such entry."""
    client.produce()
    client.publish(1, 2**31 - 1)
    client.subscribe(SHARED)
    client.flow(1)
    first = client.messages()[0]
    client.acknowledge([in_batch(first, -2, 64)])
    cursor = fuzzed.broker.topics.loaded[TOPIC].subscriptions["s"].cursor
    assert not cursor.state.batches
    client.acknowledge([MessageIdData(ledgerId=first.ledgerId, entryId=first.entryId)])
    assert cursor.backlog() == 0


def test_an_acknowledgement_while_its_consumer_unsubscribes(fuzzed: FuzzedBroker, client: Scripted) -> None:
    """The subscription counted what the leaving consumer held twice: less than nothing was left."""
    client.produce()
    client.publish(1)
    client.subscribe(SHARED)
    client.flow(1)
    ids = client.messages()
    client.ask("UNSUBSCRIBE", "unsubscribe", consumer_id=1, wait=0)
    dispatcher = fuzzed.broker.topics.loaded[TOPIC].subscriptions["s"].dispatcher
    fuzzed.wait(0)
    client.acknowledge(ids)
    assert getattr(dispatcher, "unacked", None) == 0


def test_the_id_of_an_unsubscribing_consumer_is_used_again(fuzzed: FuzzedBroker, client: Scripted) -> None:
    """The end of UNSUBSCRIBE forgot the new consumer: it stayed when the client had gone."""
    client.produce()
    client.subscribe(SHARED, name="s", initialPosition=0)
    client.subscribe(SHARED, name="other", consumer_id=2)
    client.ask("UNSUBSCRIBE", "unsubscribe", consumer_id=1, wait=0)
    for _ in range(3):
        fuzzed.wait(0)
    client.subscribe(SHARED, name="other")
    client.transport.hang_up()
    fuzzed.wait(1)
    fuzzed.check_quiet()


def test_a_reader_and_a_durable_subscription_of_one_name_at_once(
    fuzzed: FuzzedBroker, client: Scripted
) -> None:
    """Both got the same cursor, and the reader's stayed for ever."""
    client.produce()
    client.subscribe(EXCLUSIVE, wait=0)
    client.subscribe(EXCLUSIVE, consumer_id=2, durable=False, wait=0)
    fuzzed.wait(1)
    client.transport.hang_up()
    fuzzed.wait(1)
    assert fuzzed.broker.topics.loaded[TOPIC].subscriptions["s"].durable
    fuzzed.check_quiet()


def test_a_ledger_trimmed_while_it_is_read_for_redelivery(
    fuzzed: FuzzedBroker, client: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted as a failed read: an error in the log, and the subscription stood still for a second."""
    client.produce()
    client.subscribe(SHARED)
    client.flow(100)
    for number in range(7):
        client.publish(number)
    ids = [MessageIdData(ledgerId=m.ledgerId, entryId=m.entryId) for m in client.messages()]
    topic = fuzzed.broker.topics.loaded[TOPIC]
    reader = topic.managed_ledger.reader

    async def read_late(position: Position, *_: Any) -> Any:
        await finished(fuzzed.loop, fuzzed.loop.create_task(waiting()))
        raise NoSuchLedger(position[0])

    async def waiting() -> None:
        gone = fuzzed.loop.create_future()
        fuzzed.loop.call_later(0.5, gone.set_result, None)
        await gone

    monkeypatch.setattr(reader, "read_cached", lambda *_: None)
    monkeypatch.setattr(reader, "read", read_late)
    client.say("REDELIVER_UNACKNOWLEDGED_MESSAGES", "redeliverUnacknowledgedMessages", consumer_id=1, wait=0)
    fuzzed.wait(0.1)
    topic.subscriptions["s"].cursor.mark_delete_to((ids[4].ledgerId, 4))
    fuzzed.wait(0.3)
    assert ids[0].ledgerId not in topic.managed_ledger.ledgers
    monkeypatch.undo()
    client.told.clear()
    fuzzed.wait(0.4)
    assert topic.subscriptions["s"].read_errors == 0
    assert [(m.ledgerId, m.entryId) for m in client.messages()] == [(m.ledgerId, m.entryId) for m in ids[5:]]


def test_a_command_of_two_types_does_not_pass_for_connect(fuzzed: FuzzedBroker) -> None:
    """The first type let it in before the handshake, and the last one was done."""
    transport = fuzzed.connect()
    told: list[BaseCommand] = []
    transport.told = told.append
    lookup = BaseCommand(type=BaseCommand.LOOKUP, lookupTopic={"topic": TOPIC, "request_id": 1})
    transport.feed(frame(b"\x08\x02" + lookup.SerializeToString()))
    fuzzed.wait(1)
    assert transport.closed
    assert not told


@pytest.mark.parametrize("kind", [BaseCommand.SUBSCRIBE, BaseCommand.PRODUCER, BaseCommand.SEEK])
def test_a_command_without_its_message_closes(fuzzed: FuzzedBroker, client: Scripted, kind: int) -> None:
    """It was taken for one whose fields are all empty, the required ones included."""
    client.transport.feed(frame(bytes((8, kind))))
    fuzzed.wait(1)
    assert client.transport.closed
    assert not client.answers(BaseCommand.ERROR)


def test_a_topic_is_deleted_while_a_subscription_is_made(fuzzed: FuzzedBroker, client: Scripted) -> None:
    """The new cursor's node kept the topic's from going, and its ledgers stayed."""
    client.produce()
    client.publish(1)
    topic = fuzzed.broker.topics.loaded[TOPIC]
    client.subscribe(EXCLUSIVE, wait=0)
    while not topic.subscriptions.making:
        fuzzed.wait(0)
    deleting = fuzzed.loop.create_task(fuzzed.broker.topics.delete_topic(topic))
    fuzzed.world.run(deleting)
    fuzzed.wait(1)
    managed = fuzzed.world.managed
    assert not fuzzed.world.run(managed.exists(topic.name.path))
    assert fuzzed.world.run(fuzzed.world.metadata.children(topic.managed_ledger.path)) == []


def test_a_topic_closes_while_a_subscription_is_deleted(fuzzed: FuzzedBroker, client: Scripted) -> None:
    """Closing wrote the cursor that was just going: an error in the log."""
    client.produce()
    client.subscribe(EXCLUSIVE)
    client.publish(1)
    client.flow(1)
    client.acknowledge(client.messages(), wait=0)
    fuzzed.wait(0)
    client.ask("UNSUBSCRIBE", "unsubscribe", consumer_id=1, wait=0)
    fuzzed.wait(0)
    fuzzed.world.run(fuzzed.broker.topics.unload_topic(fuzzed.broker.topics.loaded[TOPIC]))
    fuzzed.wait(1)
    fuzzed.check_log()


def test_a_read_of_a_consumer_that_left_moves_nobody(
    fuzzed: FuzzedBroker, client: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended where the next consumer had come to, which then had everything delivered again."""
    client.produce()
    for number in range(4):
        client.publish(number)
    client.subscribe(EXCLUSIVE)
    reader = fuzzed.broker.topics.loaded[TOPIC].managed_ledger.reader
    read = reader.read

    async def read_late(position: Position, *arguments: Any) -> Any:
        if position[1]:
            later = fuzzed.loop.create_future()
            fuzzed.loop.call_later(1.0, later.set_result, None)
            await later
        return await read(position, *arguments)

    monkeypatch.setattr(reader, "read_cached", lambda *_: None)
    monkeypatch.setattr(reader, "read", read_late)
    client.flow(10)
    assert [m.entryId for m in client.messages()] == [0, 1, 2]
    client.ask("CLOSE_CONSUMER", "close_consumer", consumer_id=1, wait=0)
    client.subscribe(SHARED, wait=0.01)
    client.told.clear()
    client.say("FLOW", "flow", consumer_id=1, messagePermits=1, wait=0.1)
    assert [m.entryId for m in client.messages()] == [0]
    fuzzed.wait(1)
    client.flow(10)
    fuzzed.wait(2)
    assert [m.entryId for m in client.messages()] == [0, 1, 2, 3]
    fuzzed.check_counts()


def test_a_producer_comes_back_while_it_is_being_closed(fuzzed: FuzzedBroker, client: Scripted) -> None:
    """Its former self, on a connection that was gone, waited for its last publishes: the broker hung."""
    client.produce(producer_name="p", user_provided_producer_name=True)
    again = Scripted(fuzzed)
    fuzzed.wait(1)
    entry = build_entry(MessageMetadata(producer_name="p", sequence_id=1, publish_time=1), b"payload")
    client.say("SEND", "send", entry, producer_id=1, sequence_id=1, wait=0)
    client.ask("CLOSE_PRODUCER", "close_producer", producer_id=1, wait=0)
    fuzzed.wait(0)
    client.transport.hang_up()
    with alarm(CASE_SECONDS):
        again.produce(producer_name="p", user_provided_producer_name=True)
    assert again.answers(BaseCommand.PRODUCER_SUCCESS)
    assert [p.connection.closed for p in fuzzed.broker.topics.loaded[TOPIC].producers.values()] == [False]
