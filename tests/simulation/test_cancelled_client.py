"""A program may cancel any call of the client at any moment: nothing is lost, nothing is left behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from magnetar.client.batch_receiving import BatchReceivePolicy
from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.enums import BatchingType, ConsumerType, InitialPosition, TransactionState
from magnetar.client.exceptions import InvalidTxnStatusError, Timeout, TransactionNotFound
from magnetar.client.message_id import MessageId
from simulation import limits
from simulation.core import CoreClient
from simulation.trace import Violation
from simulation.world import World

STRIDE = int(os.environ.get("MAGNETAR_CANCELLED_STRIDE", "3"))
"""Every such step is one at which the call is cancelled; 1: each (make soak)."""
_MAX_MESSAGE = 64 << 10
"""Bytes; larger ones are sent in chunks."""
_ENOUGH = 20_000
"""Steps within which each call has ended."""


class Attempt:
    """One call, which is cancelled after some steps of the world, by a client of its own."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self.process = CoreClient(world, f"client{number}", Random(number))
        self.client = self.process.client
        self.topic = f"persistent://public/default/cancelled{number}"
        self.other = f"persistent://public/default/other{number}"
        self.result: Any = None
        """What the call returned; None: it was cancelled."""

    async def within(self, work: Awaitable[Any]) -> Any:
        """Runs work in the loop of the client."""

        async def working() -> Any:
            return await work

        task = self.process.loop.create_task(working())
        await self._world.finished(task)
        return task.result()

    async def sleep(self, seconds: float) -> None:
        await self.process.sleep(seconds)

    def attached(self) -> tuple[int, int]:
        """How many producers and consumers the broker has on the topics of this attempt."""
        service = self._world.broker.service
        assert service is not None
        producers = consumers = 0
        for name, topic in service.topics.loaded.items():
            if name.startswith((self.topic, self.other)):
                producers += len(topic.producers)
                consumers += sum(len(each.consumers) for each in topic.subscriptions.values())
        return producers, consumers

    async def publish(self, *contents: bytes, topic: str = "", **options: Any) -> list[MessageId]:
        """Publishes messages through a producer that is closed again."""
        producer = await self.client.create_producer(topic or self.topic, **options)
        ids = [await producer.send(content) for content in contents]
        await producer.close()
        return ids

    async def receives(self, consumer: Any, *contents: bytes) -> None:
        """A consumer receives these messages, in any order, and no other."""
        received = sorted([(await consumer.receive(5000)).data() for _ in contents])
        assert received == sorted(contents)
        with pytest.raises(Timeout):
            await consumer.receive(100)

    async def stored(self, topic: str = "") -> list[bytes]:
        """All messages of a topic, as a reader gets them, partition by partition."""
        reader = await self.client.create_reader(topic or self.topic, MessageId.earliest)
        found = []
        while await reader.has_message_available():
            found.append((await reader.read_next(5000)).data())
        await reader.close()
        return found


Story = Callable[[Attempt], AsyncIterator[Callable[[], Awaitable[Any]]]]
"""Prepares an attempt, yields the call that is cancelled, and then checks what is left."""


async def creating_a_producer(at: Attempt) -> AsyncIterator[Any]:
    yield lambda: at.client.create_producer(at.topic, producer_name="named")
    if at.result is None:
        at.result = await at.client.create_producer(at.topic, producer_name="named")
    await at.result.send(b"works")
    assert at.attached()[0] == len(await at.client.get_topic_partitions(at.topic))
    assert await at.stored() == [b"works"]


async def creating_an_exclusive_consumer(at: Attempt) -> AsyncIterator[Any]:
    yield lambda: at.client.subscribe(at.topic, "s")
    if at.result is None:
        at.result = await at.client.subscribe(at.topic, "s")
    await at.publish(b"works")
    assert (await at.result.receive(5000)).data() == b"works"


async def creating_a_consumer_with_retry_letters(at: Attempt) -> AsyncIterator[Any]:
    policy = DeadLetterPolicy(max_redeliver_count=2)

    def subscribe() -> Awaitable[Any]:
        return at.client.subscribe(
            at.topic, "s", consumer_type=ConsumerType.Shared, dead_letter_policy=policy, retry_enabled=True
        )

    yield subscribe
    if at.result is None:
        at.result = await subscribe()
    await at.publish(b"works")
    message = await at.result.receive(5000)
    await at.result.reconsume_later(message, 1)
    assert (await at.result.receive(5000)).data() == b"works"


async def subscribing_to_topics(at: Attempt) -> AsyncIterator[Any]:
    yield lambda: at.client.subscribe_to_topics([at.topic, at.other], "s")
    if at.result is None:
        at.result = await at.client.subscribe_to_topics([at.topic, at.other], "s")
    await at.publish(b"one")
    await at.publish(b"two", topic=at.other)
    assert {(await at.result.receive(5000)).data() for _ in range(2)} == {b"one", b"two"}


async def subscribing_to_a_pattern(at: Attempt) -> AsyncIterator[Any]:
    await at.publish(b"before")
    await at.publish(b"other", topic=at.other)
    pattern = f"persistent://public/default/(cancelled|other){at.topic.rpartition('cancelled')[2]}"

    def subscribe() -> Awaitable[Any]:
        return at.client.subscribe_to_pattern(pattern, "s", initial_position=InitialPosition.Earliest)

    yield subscribe
    if at.result is None:
        at.result = await subscribe()
    assert {(await at.result.receive(5000)).data() for _ in range(2)} == {b"before", b"other"}


async def creating_a_reader(at: Attempt) -> AsyncIterator[Any]:
    await at.publish(b"before")
    yield lambda: at.client.create_reader(at.topic, MessageId.earliest)
    if at.result is None:
        at.result = await at.client.create_reader(at.topic, MessageId.earliest)
    assert (await at.result.read_next(5000)).data() == b"before"
    assert at.attached()[1] == len(await at.client.get_topic_partitions(at.topic))


async def creating_a_table_view(at: Attempt) -> AsyncIterator[Any]:
    producer = await at.client.create_producer(at.topic)
    await producer.send(b"value", partition_key="key")
    yield lambda: at.client.create_table_view(at.topic)
    if at.result is None:
        at.result = await at.client.create_table_view(at.topic)
    assert at.result.get("key") == b"value"
    assert at.attached()[1] == len(await at.client.get_topic_partitions(at.topic))


def sending(content: bytes = b"cancelled", **options: Any) -> Story:
    async def story(at: Attempt) -> AsyncIterator[Any]:
        producer = await at.client.create_producer(at.topic, **options)
        await producer.send(b"first", partition_key="k")
        yield lambda: producer.send(content, partition_key="k")
        await producer.send(b"last", partition_key="k")
        assert producer.pending_messages == 0
        stored = await at.stored()
        without = [b"first", b"last"]
        assert stored in ([b"first", content, b"last"], without)
        assert stored != without or at.result is None

    return story


async def sending_into_a_full_queue(at: Attempt) -> AsyncIterator[Any]:
    """The call waits for room; one that was cancelled takes none."""
    producer = await at.client.create_producer(at.topic, max_pending_messages=2, batching_enabled=False)
    before = [at.process.loop.create_task(producer.send(b"before")) for _ in range(2)]
    await at.sleep(0)
    yield lambda: producer.send(b"cancelled")
    for each in before:
        await each
    for _ in range(3):
        await producer.send(b"after")
    assert producer.pending_messages == 0
    stored = await at.stored()
    assert stored.count(b"before") == 2
    assert stored.count(b"after") == 3


async def flushing(at: Attempt) -> AsyncIterator[Any]:
    producer = await at.client.create_producer(at.topic)
    sent = [at.process.loop.create_task(producer.send(b"sent")) for _ in range(3)]
    await at.sleep(0)
    yield producer.flush
    await producer.flush()
    for each in sent:
        await each
    assert await at.stored() == [b"sent"] * 3


async def closing_a_producer(at: Attempt) -> AsyncIterator[Any]:
    producer = await at.client.create_producer(at.topic, producer_name="named")
    await producer.send(b"sent")
    yield producer.close
    await producer.close()
    again = await at.client.create_producer(at.topic, producer_name="named")
    await again.send(b"sent again")
    assert len(await at.stored()) == 2


def receiving(**options: Any) -> Story:
    async def story(at: Attempt) -> AsyncIterator[Any]:
        """Messages arrive meanwhile; the next calls return all that no call returned."""
        consumer = await at.client.subscribe(at.topic, "s", **options)
        publishing = at.process.loop.create_task(at.publish(*(b"%d" % number for number in range(4))))
        yield lambda: consumer.receive(5000)
        received = [] if at.result is None else [at.result.data()]
        while len(received) < 4:
            received.append((await consumer.receive(5000)).data())
        assert sorted(received) == [b"0", b"1", b"2", b"3"]
        await publishing

    return story


async def receiving_in_batches(at: Attempt) -> AsyncIterator[Any]:
    policy = BatchReceivePolicy(3, -1, 100)
    consumer = await at.client.subscribe(at.topic, "s")
    publishing = at.process.loop.create_task(at.publish(*(b"%d" % number for number in range(4))))
    yield lambda: consumer.batch_receive(policy)
    received = [each.data() for each in at.result or ()]
    for _ in range(50):
        if len(received) == 4:
            break
        received += [each.data() for each in await consumer.batch_receive(policy)]
    assert sorted(received) == [b"0", b"1", b"2", b"3"]
    await publishing


async def reading(at: Attempt) -> AsyncIterator[Any]:
    reader = await at.client.create_reader(at.topic, MessageId.earliest)
    publishing = at.process.loop.create_task(at.publish(b"0", b"1"))
    yield lambda: reader.read_next(5000)
    read = [] if at.result is None else [at.result.data()]
    while len(read) < 2:
        read.append((await reader.read_next(5000)).data())
    assert sorted(read) == [b"0", b"1"]
    await publishing


async def asking_a_reader_for_messages(at: Attempt) -> AsyncIterator[Any]:
    reader = await at.client.create_reader(at.topic, MessageId.earliest)
    yield reader.has_message_available
    assert not await reader.has_message_available()
    await at.publish(b"there")
    assert await reader.has_message_available()
    assert (await reader.read_next(5000)).data() == b"there"
    assert not await reader.has_message_available()


def acknowledging(cumulative: bool, **options: Any) -> Story:
    async def story(at: Attempt) -> AsyncIterator[Any]:
        consumer = await at.client.subscribe(at.topic, "s", **options)
        await at.publish(b"0", b"1", b"2")
        messages = [await consumer.receive(5000) for _ in range(3)]
        acknowledge = consumer.acknowledge_cumulative if cumulative else consumer.acknowledge
        yield lambda: acknowledge(messages[1])
        for message in messages:
            await acknowledge(message)
        await consumer.close()
        again = await at.client.subscribe(at.topic, "s")
        await at.publish(b"3")
        assert (await again.receive(5000)).data() == b"3"

    return story


async def reconsuming(at: Attempt) -> AsyncIterator[Any]:
    """The message comes again, or it was sent to the retry topic before: at least once."""
    consumer = await at.client.subscribe(
        at.topic,
        "s",
        consumer_type=ConsumerType.Shared,
        dead_letter_policy=DeadLetterPolicy(max_redeliver_count=5),
        retry_enabled=True,
    )
    await at.publish(b"later")
    message = await consumer.receive(5000)
    yield lambda: consumer.reconsume_later(message, 1)
    consumer.negative_acknowledge(message)
    consumer.redeliver_unacknowledged_messages()
    again = await consumer.receive(70_000)
    assert again.data() == b"later"
    await consumer.acknowledge(again)


async def seeking(at: Attempt) -> AsyncIterator[Any]:
    consumer = await at.client.subscribe(at.topic, "s")
    await at.publish(b"0", b"1")
    for _ in range(2):
        await consumer.acknowledge(await consumer.receive(5000))
    yield lambda: consumer.seek(MessageId.earliest)
    await consumer.seek(MessageId.earliest)
    assert sorted([(await consumer.receive(5000)).data() for _ in range(2)]) == [b"0", b"1"]


async def unsubscribing(at: Attempt) -> AsyncIterator[Any]:
    consumer = await at.client.subscribe(at.topic, "s")
    yield consumer.unsubscribe
    with suppress(Exception):
        # A consumer whose subscription is gone can be neither.
        await consumer.unsubscribe()
    with suppress(Exception):
        await consumer.close()
    again = await at.client.subscribe(at.topic, "s")
    await at.publish(b"works")
    assert (await again.receive(5000)).data() == b"works"


async def closing_a_consumer(at: Attempt) -> AsyncIterator[Any]:
    consumer = await at.client.subscribe(at.topic, "s")
    yield consumer.close
    await consumer.close()
    again = await at.client.subscribe(at.topic, "s")
    await at.publish(b"works")
    assert (await again.receive(5000)).data() == b"works"


async def closing_a_reader(at: Attempt) -> AsyncIterator[Any]:
    reader = await at.client.create_reader(at.topic, MessageId.earliest)
    yield reader.close
    await reader.close()
    await at.sleep(1)
    assert at.attached() == (0, 0)


async def closing_a_client(at: Attempt) -> AsyncIterator[Any]:
    await at.client.create_producer(at.topic)
    await at.client.subscribe(at.topic, "s")
    await at.client.create_reader(at.other, MessageId.earliest)
    yield at.client.close
    await at.client.close()


async def beginning_a_transaction(at: Attempt) -> AsyncIterator[Any]:
    transaction = at.client.transaction(10)
    yield transaction.begin
    if at.result is None and transaction.state is TransactionState.NEW:
        await transaction.begin()
    producer = await at.client.create_producer(at.topic)
    await producer.send(b"committed", transaction=transaction)
    await transaction.commit()
    assert await at.stored() == [b"committed"]


async def ending_a_transaction(at: Attempt, *, commit: bool) -> AsyncIterator[Any]:
    """The end goes on; a second call waits for it, or learns that it is done."""
    await at.publish(b"input", topic=at.other)
    consumer = await at.client.subscribe(at.other, "s", initial_position=InitialPosition.Earliest)
    producer = await at.client.create_producer(at.topic)
    transaction = await at.client.transaction(10).begin()
    message = await consumer.receive(5000)
    await producer.send(b"output", transaction=transaction)
    await consumer.acknowledge(message, transaction=transaction)
    end = transaction.commit if commit else transaction.abort
    yield end
    if transaction.state not in (TransactionState.COMMITTED, TransactionState.ABORTED):
        await end()
    assert transaction.state is (TransactionState.COMMITTED if commit else TransactionState.ABORTED)
    assert await at.stored() == ([b"output"] if commit else [])
    await consumer.close()
    again = await at.client.subscribe(at.other, "s")
    await at.publish(b"next", topic=at.other)
    await at.receives(again, b"next", *(() if commit else (b"input",)))


async def committing(at: Attempt) -> AsyncIterator[Any]:
    async for call in ending_a_transaction(at, commit=True):
        yield call


async def aborting(at: Attempt) -> AsyncIterator[Any]:
    async for call in ending_a_transaction(at, commit=False):
        yield call


async def working_in_a_transaction(at: Attempt) -> AsyncIterator[Any]:
    """The block is left by the cancellation, which aborts; unless the commit has begun."""
    await at.publish(b"input", topic=at.other)
    consumer = await at.client.subscribe(at.other, "s", initial_position=InitialPosition.Earliest)
    producer = await at.client.create_producer(at.topic)
    message = await consumer.receive(5000)
    transaction = at.client.transaction(10)

    async def work() -> bool:
        async with transaction:
            await producer.send(b"output", transaction=transaction)
            await consumer.acknowledge(message, transaction=transaction)
        return True

    yield work
    await at.sleep(12)
    with suppress(InvalidTxnStatusError, TransactionNotFound):
        await transaction.commit()
    stored = await at.stored()
    assert stored in ([b"output"], [])
    assert stored or at.result is None
    await consumer.close()
    again = await at.client.subscribe(at.other, "s")
    await at.publish(b"next", topic=at.other)
    await at.receives(again, b"next", *(() if stored else (b"input",)))


STORIES: dict[str, Story] = {
    "create_producer": creating_a_producer,
    "subscribe": creating_an_exclusive_consumer,
    "subscribe with retry letters": creating_a_consumer_with_retry_letters,
    "subscribe_to_topics": subscribing_to_topics,
    "subscribe_to_pattern": subscribing_to_a_pattern,
    "create_reader": creating_a_reader,
    "create_table_view": creating_a_table_view,
    "send": sending(batching_enabled=False),
    "send in a batch": sending(),
    "send in a batch by key": sending(batching_type=BatchingType.KeyBased),
    "send in chunks": sending(bytes(3 * _MAX_MESSAGE), batching_enabled=False, chunking_enabled=True),
    "send into a full queue": sending_into_a_full_queue,
    "flush": flushing,
    "close a producer": closing_a_producer,
    "receive": receiving(),
    "receive without a queue": receiving(receiver_queue_size=0),
    "receive from a shared subscription": receiving(consumer_type=ConsumerType.Shared, receiver_queue_size=1),
    "batch_receive": receiving_in_batches,
    "read_next": reading,
    "has_message_available": asking_a_reader_for_messages,
    "acknowledge with a receipt": acknowledging(cumulative=False, ack_receipt_enabled=True),
    "acknowledge_cumulative with a receipt": acknowledging(cumulative=True, ack_receipt_enabled=True),
    "reconsume_later": reconsuming,
    "seek": seeking,
    "unsubscribe": unsubscribing,
    "close a consumer": closing_a_consumer,
    "close a reader": closing_a_reader,
    "close a client": closing_a_client,
    "begin": beginning_a_transaction,
    "commit": committing,
    "abort": aborting,
    "a transaction's block": working_in_a_transaction,
}
_NOT_OF_PARTITIONS = {"send in chunks", "receive without a queue", "acknowledge_cumulative with a receipt"}


class Cancellations:
    """One broker, and attempts that cancel a call a few steps later each time."""

    def __init__(self, partitions: int) -> None:
        shipped = limits.draw(Random(1))
        settings = replace(
            shipped.settings,
            transaction_coordinator_enabled=True,
            max_message_size=_MAX_MESSAGE,
            allow_auto_topic_creation_type="partitioned" if partitions else "non-partitioned",
            default_num_partitions=max(partitions, 1),
        )
        self._limits = replace(shipped, settings=settings)
        self.world = World(Random(1), self._limits)
        # The broker's topics become many here, and are not the subject.
        self.world.loop.timeline.after_step = None
        self.number = 0

    def run(self, story: Story) -> int:
        """Returns at how many places the call was cancelled."""
        try:
            with limits.in_effect(self._limits):
                self.world.drive(self._start())
                steps = 1
                while steps < _ENOUGH and self._attempt(story, steps):
                    steps += STRIDE
                self.world.drive(self.world.broker.stop())
                self.world.check()
        finally:
            self.world.close()
        return self.number - 1

    async def _start(self) -> None:
        assert await self.world.broker.start()

    def _attempt(self, story: Story, steps: int) -> bool:
        """Whether the call was still going on after so many steps."""
        at = Attempt(self.world, self.number)
        self.number += 1
        telling = story(at)
        call = self.world.drive(at.within(anext(telling)))
        task = at.process.loop.create_task(self._call(call))
        cancelled = self._cancel_after(steps, task)
        if not task.cancelled():
            at.result = task.result()
        try:
            self.world.drive(at.within(anext(telling, None)))
            self.world.drive(at.process.close())
            if at.attached() != (0, 0):
                raise Violation(f"producers and consumers that the client left: {at.attached()}")
        except BaseException as error:
            error.add_note(f"the call was cancelled after {steps} steps")
            raise
        return cancelled

    @staticmethod
    async def _call(call: Callable[[], Awaitable[Any]]) -> Any:
        returned = await call()
        return True if returned is None else returned

    def _cancel_after(self, steps: int, task: Any) -> bool:
        """Cancels a task after so many steps of the world, between two callbacks; False: it ended before."""
        timeline = self.world.loop.timeline
        left, cancelled = steps, False

        def counted() -> None:
            nonlocal left, cancelled
            left -= 1
            if left == 0 and not task.done():
                cancelled = True
                task.cancel()

        timeline.after_step = counted
        try:
            self.world.drive(self.world.finished(task))
        finally:
            timeline.after_step = None
        return cancelled


@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("name", STORIES)
def test_a_call_may_be_cancelled_at_any_moment(name: str, partitions: int) -> None:
    if partitions and name in _NOT_OF_PARTITIONS:
        pytest.skip("partitions do not change this call")
    assert Cancellations(partitions).run(STORIES[name]) > 3
