"""What fails half way, is refused, or goes unanswered: nobody waits for ever, and nothing is left behind."""

from __future__ import annotations

from typing import Any, cast

import pytest
from client_world import BUSY, TOPIC, World, arrives

from magnetar.client.acknowledging import Acknowledgements
from magnetar.client.consumer import Consumer
from magnetar.client.dead_letters import DeadLetterPolicy, DeadLetters
from magnetar.client.enums import ConsumerType
from magnetar.client.exceptions import (
    AlreadyClosed,
    InvalidMessage,
    NotAllowedError,
    PulsarException,
    Timeout,
    TopicNotFound,
    UnknownError,
)
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.client.partitioned import PartitionedConsumer
from magnetar.client.producer import Producer
from magnetar.client.reader import Reader
from magnetar.client.receiving import Arrivals
from magnetar.protocol.hot_client_decode import ReceiptRun
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


class Outcomes:
    """What senders were told."""

    def __init__(self) -> None:
        self.told: list[type[PulsarException] | None] = []

    def __call__(self, _id: MessageId | None, error: PulsarException | None) -> None:
        self.told.append(None if error is None else type(error))


def receipt(producer: Producer, sequence_id: int) -> None:
    run = ReceiptRun()
    run.sequence_ids[0], run.ledger_ids[0], run.entry_ids[0], run.count = sequence_id, 1, sequence_id, 1
    producer.receipts(run)


def test_who_looks_for_messages_in_vain_is_not_remembered() -> None:
    world = World()
    arrivals = Arrivals(world.loop)
    for _ in range(3):
        world.fails(Timeout, arrivals.wait(world.loop.time() + 1, "late"))
    given_up = world.loop.create_task(arrivals.wait(None, "late"))
    world.loop.run_for(1)
    given_up.cancel()
    world.loop.run_for(1)
    assert not arrivals


def test_senders_hear_of_a_producer_whose_broker_does_not_answer_its_close() -> None:
    world = World()
    producer = world.producer(batching_enabled=False, send_timeout_millis=0)
    outcomes = Outcomes()
    producer.enqueue(b"never confirmed", outcomes, None, None)
    world.broker.silent.add(BaseCommand.CLOSE_PRODUCER)
    world.fails(Timeout, producer.close())
    assert outcomes.told == [AlreadyClosed]


@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_what_is_given_up_while_it_is_made_known_is_taken_back(kind: str) -> None:
    world = World()
    world.broker.silent |= {BaseCommand.SUBSCRIBE, BaseCommand.PRODUCER}
    made: Any = (
        Consumer(world.services, TOPIC, "s", ConsumerOptions())
        if kind == "consumer"
        else Producer(world.services, TOPIC, ProducerOptions())
    )
    opening = world.loop.create_task(made.open())
    world.loop.run_for(1)
    opening.cancel()
    world.loop.run_for(1)
    assert not world.broker.consumers
    assert not world.broker.producers
    closing = BaseCommand.CLOSE_CONSUMER if kind == "consumer" else BaseCommand.CLOSE_PRODUCER
    assert world.broker.asked[-1].type == closing


def test_a_consumer_that_is_closed_while_it_comes_back_leaves_none_at_the_broker() -> None:
    world = World()
    consumer = world.consumer()
    world.broker.silent.add(BaseCommand.SUBSCRIBE)
    consumer.closed_by_broker(None)
    world.loop.run_for(1)
    assert world.broker.count(BaseCommand.SUBSCRIBE) == 2
    world.loop.run_until(consumer.close())
    world.loop.run_for(1)
    assert world.broker.count(BaseCommand.CLOSE_CONSUMER) == 1


def test_a_refusal_of_a_cumulative_acknowledgement_is_told() -> None:
    world = World()
    acknowledging = Acknowledgements(
        world.loop,
        1,
        lambda: cast(Any, world.broker),
        ConsumerOptions(ack_receipt_enabled=True),
        timeout=5,
    )
    world.loop.run_until(acknowledging.cumulative(MessageId(-1, 1, 1)))
    world.broker.refused[BaseCommand.ACK] = "no such consumer"
    told = world.fails(PulsarException, acknowledging.cumulative(MessageId(-1, 1, 2)))
    assert "no such consumer" in str(told)


def test_a_consumer_that_cannot_come_back_for_a_reason_nobody_knew_says_so() -> None:
    world = World()
    consumer = world.consumer()

    def broken() -> Any:
        raise ValueError("a host name that is none")

    world.connects = broken
    receiving = world.loop.create_task(consumer.receive())
    consumer.closed_by_broker(None)
    world.loop.run_for(5)
    assert "a host name that is none" in str(world.fails(UnknownError, receiving))


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize(
    "options",
    [{"properties": {"n": 1}}, {"event_timestamp": -1}, {"event_timestamp": "then"}, {"deliver_at": "soon"}],
)
def test_a_message_that_cannot_be_written_is_refused_and_not_waited_for(
    batching: bool, options: dict[str, Any]
) -> None:
    world = World()
    producer = world.producer(batching_enabled=batching)
    outcomes = Outcomes()
    with pytest.raises(InvalidMessage):
        producer.enqueue(b"content", outcomes, None, producer.message_options(options))
    with pytest.raises(InvalidMessage):
        producer.enqueue(cast(Any, "text"), outcomes, None, None)
    assert producer.pending_messages == 0
    world.loop.run_until(producer.flush())
    assert outcomes.told == []


@pytest.mark.parametrize("sequence_id", [-1, 2**63, pytest.param(10**400, id="vast")])
def test_a_sequence_id_that_is_none_is_refused(sequence_id: int) -> None:
    producer = World().producer()
    with pytest.raises(InvalidMessage, match="sequence id"):
        producer.enqueue(b"content", Outcomes(), sequence_id, None)
    assert producer.pending_messages == 0


def test_one_message_that_is_refused_before_others_are_stored_is_taken_out_of_their_row() -> None:
    world = World()
    producer = world.producer(batching_enabled=False)
    outcomes = [Outcomes() for _ in range(3)]
    for number, each in enumerate(outcomes):
        producer.enqueue(b"content", each, number, None)
    producer.send_failed(1, NotAllowedError("too large for the topic"))
    assert [each.told for each in outcomes] == [[], [NotAllowedError], []]
    receipt(producer, 0)
    receipt(producer, 2)
    assert [each.told for each in outcomes] == [[None], [NotAllowedError], [None]]
    assert producer.pending_messages == 0


def test_one_topic_that_cannot_be_had_keeps_no_other_from_being_consumed() -> None:
    world = World()
    there = {TOPIC + "-a"}

    async def find(_makes_topics: bool) -> set[str]:
        return set(there)

    consumer = TopicsConsumer(world.services, find, "s", ConsumerOptions(), 60, "public/default/.*")
    world.loop.run_until(consumer.open())
    there |= {BUSY, TOPIC + "-c"}
    there.remove(TOPIC + "-a")
    world.loop.run_for(61)
    assert set(consumer._by_topic) == {TOPIC + "-c"}
    world.loop.run_until(consumer.close())


def test_a_topic_that_was_found_and_is_deleted_is_neither_made_again_nor_in_the_way_of_others() -> None:
    world = World()
    there = {TOPIC + "-a", TOPIC + "-b"}

    async def find(_makes_topics: bool) -> set[str]:
        return set(there)

    consumer = TopicsConsumer(world.services, find, "s", ConsumerOptions(), 60, "public/default/.*")
    world.loop.run_until(consumer.open())
    world.broker.gone.add(TOPIC + "-a")
    for part in consumer._parts:
        part.closed_by_broker(None)
    receiving = world.loop.create_task(consumer.receive())
    world.loop.run_for(5)
    asked = [command.subscribe for command in world.broker.asked if command.type == BaseCommand.SUBSCRIBE]
    assert len(asked) == 4
    assert not any(each.force_topic_creation for each in asked)
    [left] = consumer._parts
    assert left.topic() == TOPIC + "-b"
    arrives(left, 1, 0)
    assert world.loop.run_until(receiving).data() == b"m1"
    # It may come back, and is looked for as all others are.
    world.broker.gone.clear()
    world.loop.run_for(60)
    assert set(consumer._by_topic) == there
    world.loop.run_until(consumer.close())


def test_topics_that_were_named_are_made_and_missed() -> None:
    world = World()

    async def find(_makes_topics: bool) -> set[str]:
        return {TOPIC}

    consumer = TopicsConsumer(world.services, find, "s", ConsumerOptions(), 0)
    world.loop.run_until(consumer.open())
    assert world.broker.asked[-1].subscribe.force_topic_creation
    world.broker.gone.add(TOPIC)
    consumer._parts[0].closed_by_broker(None)
    world.fails(TopicNotFound, consumer.receive())


def test_one_partition_that_cannot_be_closed_keeps_no_other_open() -> None:
    world = World()
    consumer = PartitionedConsumer(world.services, TOPIC, "s", 3, ConsumerOptions())
    world.loop.run_until(consumer.open())
    world.broker.silent.add(BaseCommand.CLOSE_CONSUMER)
    world.fails(Timeout, consumer.close())
    assert world.broker.count(BaseCommand.CLOSE_CONSUMER) == 3


class Grave:
    """Where dead letters go; it takes a while to open."""

    def __init__(self, world: World, *, closes: bool = True) -> None:
        self._loop = world.loop
        self._closes = closes
        self.opened = 0
        self.open = 0
        self.sent: list[bytes] = []
        self.keys: list[dict[str, Any]] = []

    async def __call__(self, _topic: str) -> Any:
        passed = self._loop.create_future()
        self._loop.call_later(1, passed.set_result, None)
        await passed
        self.opened += 1
        self.open += 1
        return self

    async def send(self, content: bytes, **options: Any) -> MessageId:
        self.sent.append(content)
        self.keys.append({name: value for name, value in options.items() if "key" in name})
        return MessageId(-1, 9, 9)

    async def close(self) -> None:
        if not self._closes:
            raise Timeout("the broker does not answer")
        self.open -= 1


def messages(world: World, redeliveries: int, numbers: range) -> list[Message]:
    """As they come to a consumer."""
    consumer = world.consumer(consumer_type=ConsumerType.Shared)
    return [delivered(consumer, number, redeliveries) for number in numbers]


def delivered(consumer: Consumer, number: int, redeliveries: int, **keys: Any) -> Message:
    arrives(consumer, number, redeliveries, **keys)
    found = consumer.take()
    assert found is not None
    return found


def letters(world: World, grave: Grave) -> DeadLetters:
    return DeadLetters(DeadLetterPolicy(1), TOPIC, "s", grave, lambda _id: None, world.loop)


def test_dead_letters_that_come_at_once_go_by_one_producer() -> None:
    world = World()
    grave = Grave(world)
    dead = letters(world, grave)
    first, second = messages(world, 2, range(2))
    burying = [world.loop.create_task(dead.bury([each])) for each in (first, second)]
    for each in burying:
        world.loop.run_until(each)
    assert sorted(grave.sent) == [b"m0", b"m1"]
    world.loop.run_until(dead.close())
    assert (grave.opened, grave.open) == (1, 0)


@pytest.mark.parametrize(
    ("had", "has"),
    [
        ({}, {}),
        ({"partition_key": "k", "ordering_key": b"o"}, {"partition_key": "k", "ordering_key": "o"}),
        ({"partition_key": "AP8=", "partition_key_b64_encoded": True}, {"partition_key_bytes": b"\0\xff"}),
        ({"partition_key": "no Base64", "partition_key_b64_encoded": True}, {"partition_key": "no Base64"}),
        ({"null_partition_key": True}, {"null_partition_key": True}),
    ],
)
def test_dead_letters_keep_their_keys(had: dict[str, Any], has: dict[str, Any]) -> None:
    world = World()
    grave = Grave(world)
    message = delivered(world.consumer(consumer_type=ConsumerType.Shared), 1, 2, **had)
    assert world.loop.run_until(letters(world, grave).bury([message])) == []
    assert grave.keys == [has]


def test_a_consumer_that_closes_while_dead_letters_are_on_their_way_leaves_no_producer() -> None:
    world = World()
    grave = Grave(world)
    dead = letters(world, grave)
    burying = world.loop.create_task(dead.bury(messages(world, 2, range(2))))
    world.loop.run_for(0.5)
    world.loop.run_until(dead.close())
    assert len(world.loop.run_until(burying)) == 2
    assert (grave.opened, grave.open) == (1, 0)


def test_a_dead_letter_that_was_asked_for_again_meanwhile_is_buried_once() -> None:
    world = World()
    grave = Grave(world)
    world.services.open_producer = grave
    consumer = world.consumer(
        consumer_type=ConsumerType.Shared,
        dead_letter_policy=DeadLetterPolicy(1),
        negative_ack_redelivery_delay_ms=10,
    )
    delivered(consumer, 1, 2)
    consumer.redeliver_unacknowledged_messages()
    consumer.negative_acknowledge(delivered(consumer, 1, 3))
    world.loop.run_for(5)
    assert grave.sent == [b"m1"]


def test_a_consumer_whose_dead_letters_cannot_be_closed_is_closed_at_the_broker() -> None:
    world = World()
    grave = Grave(world, closes=False)
    world.services.open_producer = grave
    consumer = world.consumer(
        consumer_type=ConsumerType.Shared,
        dead_letter_policy=DeadLetterPolicy(1),
        negative_ack_redelivery_delay_ms=10,
    )
    consumer.negative_acknowledge(delivered(consumer, 1, 2))
    world.loop.run_for(5)
    assert grave.sent == [b"m1"]
    world.fails(Timeout, consumer.close())
    assert world.broker.count(BaseCommand.CLOSE_CONSUMER) == 1


def test_what_a_seek_throws_away_that_closes_nobody_is_asked_for_again() -> None:
    world = World()
    consumer = world.consumer(receiver_queue_size=4)
    for number in range(4):
        arrives(consumer, number, 0)
    world.loop.run_until(consumer.seek(MessageId.latest))
    assert [command.flow.messagePermits for command in world.broker.flows] == [4, 4]


def test_a_reader_that_cannot_go_to_its_place_leaves_no_consumer() -> None:
    world = World()
    world.broker.silent.add(BaseCommand.GET_LAST_MESSAGE_ID)
    reader = Reader(world.services, TOPIC, MessageId.latest, start_message_id_inclusive=True)
    world.fails(Timeout, reader.open())
    assert world.broker.count(BaseCommand.CLOSE_CONSUMER) == 1
    assert not world.services.attachments
