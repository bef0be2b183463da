"""Transactions of the client library, in both interfaces; against another broker, with transactions and batch
indexes, where MAGNETAR_PEER_URL names it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec
from uuid import uuid4

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from server import Server

from magnetar import client as blocking
from magnetar.admin_client import AdminClient
from magnetar.client.aio import (
    Client,
    CompressionType,
    Consumer,
    ConsumerType,
    InitialPosition,
    Transaction,
    TransactionState,
)
from magnetar.client.dead_letters import DeadLetterPolicy
from magnetar.client.encryption.key_readers import CryptoKeyReader
from magnetar.client.exceptions import (
    AlreadyClosed,
    InvalidConfiguration,
    InvalidTxnStatusError,
    MessageTooBig,
    NotAllowedError,
    Result,
    Timeout,
    TransactionConflict,
    TransactionHasOperationFailed,
)

P = ParamSpec("P")

PEER = os.environ.get("MAGNETAR_PEER_URL", "")
WAIT = 20_000
SOON = 500
EARLIEST = {"initial_position": InitialPosition.Earliest}
ADMIN: dict[str, str] = {}
SETTINGS = {"transactionCoordinatorEnabled": "true", "acknowledgmentAtBatchIndexLevelEnabled": "true"}


@pytest.fixture(scope="module")
def url(start_server: Callable[..., Server]) -> str:
    if PEER:
        ADMIN[PEER] = os.environ["MAGNETAR_PEER_ADMIN_URL"]
        return PEER
    running = start_server(**SETTINGS)
    ADMIN[running.url] = running.http_url
    return running.url


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/{uuid4().hex}"


async def contents(consumer: Any, count: int) -> list[bytes]:
    return [(await consumer.receive(WAIT)).data() for _ in range(count)]


async def nothing(consumer: Any) -> bool:
    try:
        await consumer.receive(SOON)
    except Timeout:
        return True
    return False


def in_order(found: list[bytes], sent: list[bytes]) -> bool:
    """Whether messages are in the order in which a producer sent them: every other one in a transaction.

    Apache Pulsar's brokers keep the order of the messages of a transaction, and that of all others.
    """
    if PEER:
        plain, in_transaction = sent[::2], sent[1::2]
        kept = [each for each in found if each in plain], [each for each in found if each not in plain]
        return kept == (plain, in_transaction)
    return found == sent


class Stopped(Exception):
    pass


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @wraps(test)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        asyncio.run(test(*arguments, **named))

    return run


async def failing(
    t: Transaction, work: Callable[[Transaction], Coroutine[Any, Any, None]], error: type[Exception]
) -> Exception:
    """Returns the error that ends a block with ``work``."""
    with pytest.raises(error) as caught:
        async with t:
            await work(t)
    return caught.value


# Both ends of a block


@in_loop
async def test_messages_are_visible_when_the_block_is_left(url: str, topic: str) -> None:
    async with Client(url) as client:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        producer = await client.create_producer(topic)
        async with client.transaction() as t:
            assert t.state is TransactionState.OPEN
            await asyncio.gather(*(producer.send(b"%d" % n, transaction=t) for n in range(10)))
            await producer.send(b"plain, behind")
            assert await nothing(consumer)
        assert t.state is TransactionState.COMMITTED
        assert await contents(consumer, 11) == [b"%d" % n for n in range(10)] + [b"plain, behind"]


@in_loop
async def test_an_exception_aborts(url: str, topic: str) -> None:
    async with Client(url) as client:
        inputs = f"{topic}-in"
        source = await client.subscribe(inputs, "s", consumer_type=ConsumerType.Shared, **EARLIEST)
        await (await client.create_producer(inputs)).send(b"input")
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        producer = await client.create_producer(topic)
        message = await source.receive(WAIT)

        async def work(t: Transaction) -> None:
            await producer.send(b"never", transaction=t)
            await source.acknowledge(message, transaction=t)
            raise Stopped

        t = client.transaction()
        await failing(t, work, Stopped)
        assert t.state is TransactionState.ABORTED
        await producer.send(b"plain")
        assert await contents(consumer, 1) == [b"plain"]
        again = await source.receive(WAIT)
        assert (again.data(), again.redelivery_count()) == (b"input", 1)


def test_blocking(url: str, topic: str) -> None:
    with blocking.Client(url) as client:
        inputs = f"{topic}-in"
        source = client.subscribe(inputs, "s", initial_position=InitialPosition.Earliest)
        consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        client.create_producer(inputs).send(b"input")
        producer = client.create_producer(topic, batching_enabled=True)
        outcomes: list[Result] = []
        message = source.receive(WAIT)
        t = client.transaction(timeout=30)
        with suppress(Stopped), t:
            producer.send(b"never", transaction=t)
            source.acknowledge_cumulative(message, transaction=t)
            raise Stopped
        assert t.state is TransactionState.ABORTED
        message = source.receive(WAIT)
        with client.transaction() as t:
            producer.send(b"first", transaction=t)
            for n in range(5):
                producer.send_async(b"%d" % n, lambda result, _: outcomes.append(result), transaction=t)
            source.acknowledge(message, transaction=t)
            with pytest.raises(Timeout):
                consumer.receive(SOON)
        assert outcomes == [Result.Ok] * 5
        found = [consumer.receive(WAIT).data() for _ in range(6)]
        assert found == [b"first", *(b"%d" % n for n in range(5))]
        with pytest.raises(InvalidTxnStatusError, match="COMMITTED"):
            producer.send(b"late", transaction=t)
        assert str(t.id).startswith("(")


@in_loop
async def test_without_a_block(url: str, topic: str) -> None:
    async with Client(url) as client:
        producer = await client.create_producer(topic)
        t = client.transaction()
        assert t.state is TransactionState.NEW
        with pytest.raises(InvalidTxnStatusError, match="not begun"):
            await producer.send(b"early", transaction=t)
        await t.begin()
        await producer.send(b"kept", transaction=t)
        await t.commit()
        with pytest.raises(InvalidTxnStatusError, match="COMMITTED"):
            await t.commit()
        with pytest.raises(InvalidTxnStatusError, match="COMMITTED"):
            await t.abort()
        other = await client.transaction().begin()
        await producer.send(b"dropped", transaction=other)
        await other.abort()
        assert other.id != t.id
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        assert await contents(consumer, 1) == [b"kept"]
        assert await nothing(consumer)
        with pytest.raises(InvalidTxnStatusError, match="create a new transaction"):
            await t.begin()


@in_loop
async def test_commit_waits_for_everything(url: str, topic: str) -> None:
    """Nothing is awaited before the block ends."""
    async with Client(url) as client:
        inputs = f"{topic}-in"
        source = await client.subscribe(inputs, "s", consumer_type=ConsumerType.Shared, **EARLIEST)
        feed = await client.create_producer(inputs)
        await asyncio.gather(*(feed.send(b"%d" % n) for n in range(20)))
        producer = await client.create_producer(topic, max_pending_messages=3)
        results: list[Result] = []
        messages = [await source.receive(WAIT) for _ in range(20)]
        async with client.transaction() as t:
            sends = [asyncio.create_task(producer.send(b"%d" % n, transaction=t)) for n in range(20)]
            acks = [asyncio.create_task(source.acknowledge(m, transaction=t)) for m in messages]
            await asyncio.sleep(0)
            for task in sends:
                task.add_done_callback(lambda task: results.append(Result.Ok))
        assert len(results) == 20
        await asyncio.gather(*sends, *acks)
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        assert await contents(consumer, 20) == [b"%d" % n for n in range(20)]
        await source.close()
        source = await client.subscribe(inputs, "s", consumer_type=ConsumerType.Shared)
        assert await nothing(source)


# Failures


@in_loop
async def test_a_failed_message_keeps_the_transaction_from_being_committed(url: str, topic: str) -> None:
    async with Client(url) as client:
        producer = await client.create_producer(topic)

        async def work(t: Transaction) -> None:
            await producer.send(b"good", transaction=t)
            with pytest.raises(MessageTooBig):
                await producer.send(bytes(20 << 20), transaction=t)

        t = client.transaction()
        error = await failing(t, work, TransactionHasOperationFailed)
        assert isinstance(error.__cause__, MessageTooBig)
        assert t.state is TransactionState.ABORTED
        await producer.send(b"plain")
        assert await contents(await client.subscribe(topic, "s", **EARLIEST), 1) == [b"plain"]


@in_loop
async def test_conflict(url: str, topic: str) -> None:
    async with Client(url) as client:
        consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, **EARLIEST)
        await (await client.create_producer(topic)).send(b"one")
        message = await consumer.receive(WAIT)

        async def work(t: Transaction) -> None:
            with pytest.raises(TransactionConflict):
                await consumer.acknowledge(message, transaction=t)

        second = client.transaction()
        async with client.transaction() as first:
            await consumer.acknowledge(message, transaction=first)
            error = await failing(second, work, TransactionHasOperationFailed)
            assert isinstance(error.__cause__, TransactionConflict)
        assert (first.state, second.state) == (TransactionState.COMMITTED, TransactionState.ABORTED)


@in_loop
async def test_time_out(url: str, topic: str) -> None:
    async with Client(url) as client:
        producer = await client.create_producer(topic)

        async def work(t: Transaction) -> None:
            await producer.send(b"never", transaction=t)
            await asyncio.sleep(1.5)
            assert t.state is TransactionState.TIME_OUT
            with pytest.raises(InvalidTxnStatusError):
                await producer.send(b"never", transaction=t)

        error = await failing(client.transaction(timeout=1), work, InvalidTxnStatusError)
        assert "TIME_OUT, after its time-out of 1 s" in str(error)
        await producer.send(b"plain")
        assert await contents(await client.subscribe(topic, "s", **EARLIEST), 1) == [b"plain"]


@in_loop
async def test_time_out_must_be_positive(url: str) -> None:
    async with Client(url) as client:
        with pytest.raises(InvalidConfiguration, match="time-out"):
            client.transaction(timeout=0)


@pytest.mark.skipif(bool(PEER), reason="the other broker has transactions")
@in_loop
async def test_without_coordinators(start_server: Callable[..., Server], topic: str) -> None:
    async with Client(start_server().url) as client:
        with pytest.raises(NotAllowedError, match="transactionCoordinatorEnabled"):
            await client.transaction().begin()


# With everything else


@pytest.mark.parametrize(
    "options",
    [
        {"batching_enabled": True, "batching_max_messages": 7},
        {"batching_enabled": False},
        {"batching_enabled": True, "compression_type": CompressionType.ZLib},
        {"batching_enabled": False, "chunking_enabled": True},
    ],
    ids=lambda options: "-".join(options),
)
@in_loop
async def test_two_transactions_of_one_producer(url: str, topic: str, options: dict[str, Any]) -> None:
    """Their messages and plain ones interleave: no entry has messages of two of them."""
    async with Client(url) as client:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        producer = await client.create_producer(topic, **options)
        size = 6 << 20 if "chunking_enabled" in options else 10
        first, second = await client.transaction().begin(), await client.transaction().begin()
        sends = [
            producer.send(f"{name} {n} ".encode() + bytes(size), **({"transaction": t} if t else {}))
            for n in range(3)
            for name, t in (("first", first), ("plain", None), ("second", second))
        ]
        await asyncio.gather(*sends)
        await first.abort()
        await second.commit()
        found = [data[: data.rindex(b" ")] for data in await contents(consumer, 6)]
        assert in_order(found, [b"%s %d" % (name, n) for n in range(3) for name in (b"plain", b"second")])
        assert await nothing(consumer)


@pytest.mark.parametrize("lazy", [False, True])
@in_loop
async def test_partitions(url: str, topic: str, lazy: bool) -> None:
    """Partitions, whose producers are opened by their first message."""
    await asyncio.to_thread(AdminClient(ADMIN[url]).create_partitioned_topic, topic, 3)
    async with Client(url) as client:
        producer = await client.create_producer(topic, lazy_start_partitioned_producers=lazy)
        async with client.transaction() as t:
            sends = [
                asyncio.create_task(producer.send(b"%d" % n, partition_key=str(n), transaction=t))
                for n in range(30)
            ]
            await asyncio.sleep(0)
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        messages = [await consumer.receive(WAIT) for _ in range(30)]
        assert sorted(int(m.data()) for m in messages) == list(range(30))
        assert len({m.message_id().partition() for m in messages}) == 3
        await asyncio.gather(*sends)
        async with client.transaction() as t:
            await asyncio.gather(*(consumer.acknowledge(m, transaction=t) for m in messages))
        await consumer.close()
        assert await nothing(await client.subscribe(topic, "s"))


@in_loop
async def test_messages_of_a_batch(url: str, topic: str) -> None:
    """Some are acknowledged in a transaction that commits, some in one that aborts, some plainly."""
    async with Client(url) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            batch_index_ack_enabled=True,
            ack_group_time_ms=0,
            **EARLIEST,
        )
        producer = await client.create_producer(topic, batching_max_publish_delay_ms=1000)
        sends = [asyncio.create_task(producer.send(b"%d" % n)) for n in range(6)]
        await asyncio.sleep(0)
        await producer.flush()
        ids = await asyncio.gather(*sends)
        assert len({each.entry_id() for each in ids}) == 1
        messages = [await consumer.receive(WAIT) for _ in range(6)]
        async with client.transaction() as t:
            for message in messages[:2]:
                await consumer.acknowledge(message, transaction=t)
        await consumer.acknowledge(messages[2])
        t = await client.transaction().begin()
        await asyncio.gather(*(consumer.acknowledge(m, transaction=t) for m in messages[3:5]))
        await t.abort()
        # The broker delivers entries: what was not acknowledged comes with what the abort gave back.
        assert sorted(await contents(consumer, 3)) == [b"3", b"4", b"5"]
        await consumer.close()
        consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared)
        assert sorted(await contents(consumer, 3)) == [b"3", b"4", b"5"]


@in_loop
async def test_messages_in_chunks(url: str, topic: str) -> None:
    async with Client(url) as client:
        consumer = await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared, **EARLIEST)
        producer = await client.create_producer(topic, batching_enabled=False, chunking_enabled=True)
        await producer.send(bytes(12 << 20))
        message = await consumer.receive(WAIT)

        async def work(t: Transaction) -> None:
            await consumer.acknowledge(message, transaction=t)
            raise Stopped

        await failing(client.transaction(), work, Stopped)
        message = await consumer.receive(WAIT)
        assert len(message.data()) == 12 << 20
        async with client.transaction() as t:
            await consumer.acknowledge(message, transaction=t)
        await consumer.close()
        assert await nothing(await client.subscribe(topic, "s", consumer_type=ConsumerType.Shared))


@in_loop
async def test_encrypted_messages(url: str, topic: str, tmp_path: Path) -> None:
    """Contents are encrypted, ids of transactions are not: the broker needs them."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    pem = serialization.Encoding.PEM
    private.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    public.write_bytes(key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo))
    async with Client(url) as client:
        reading = CryptoKeyReader(private_key_path=str(private))
        consumer = await client.subscribe(topic, "s", crypto_key_reader=reading, **EARLIEST)
        producer = await client.create_producer(
            topic, encryption_key="k", crypto_key_reader=CryptoKeyReader(public_key_path=str(public))
        )
        aborted = await client.transaction().begin()
        await producer.send(b"aborted", transaction=aborted)
        async with client.transaction() as t:
            await producer.send(b"committed", transaction=t)
            await aborted.abort()
        assert await contents(consumer, 1) == [b"committed"]
        assert await nothing(consumer)


@in_loop
async def test_given_sequence_ids(url: str, topic: str) -> None:
    """They are those of the messages, in transactions and beside them."""
    async with Client(url) as client:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        producer = await client.create_producer(topic, producer_name=f"p-{topic}", initial_sequence_id=9)
        async with client.transaction() as t:
            sends = [
                producer.send(b"%d" % n, sequence_id=10 + n, **({"transaction": t} if n % 2 else {}))
                for n in range(6)
            ]
            await asyncio.gather(*sends)
        assert producer.last_sequence_id() == 15
        assert in_order(await contents(consumer, 6), [b"%d" % n for n in range(6)])


@in_loop
async def test_several_topics(url: str, topic: str) -> None:
    async with Client(url) as client:
        topics = [f"{topic}-{n}" for n in range(3)]
        consumer = await client.subscribe_to_topics(topics, "s", **EARLIEST)
        producers = [await client.create_producer(each) for each in topics]
        async with client.transaction() as t:
            for each in producers:
                await each.send(each.topic().encode(), transaction=t)
        messages = [await consumer.receive(WAIT) for _ in topics]
        assert sorted(m.data() for m in messages) == sorted(each.encode() for each in topics)
        async with client.transaction() as t:
            for message in messages:
                await consumer.acknowledge(message, transaction=t)
        await consumer.close()
        assert await nothing(await client.subscribe_to_topics(topics, "s"))


@in_loop
async def test_dead_letters(url: str, topic: str) -> None:
    """Each abort counts as a redelivery."""
    async with Client(url) as client:
        consumer = await client.subscribe(
            topic,
            "s",
            consumer_type=ConsumerType.Shared,
            dead_letter_policy=DeadLetterPolicy(1, initial_subscription_name="kept"),
            negative_ack_redelivery_delay_ms=100,
            **EARLIEST,
        )
        await (await client.create_producer(topic)).send(b"poison")
        t = await client.transaction().begin()
        await consumer.acknowledge(await consumer.receive(WAIT), transaction=t)
        await t.abort()
        message = await consumer.receive(WAIT)
        assert message.redelivery_count() == 1
        consumer.negative_acknowledge(message)
        dead = await client.subscribe(f"{topic}-s-DLQ", "kept")
        assert await contents(dead, 1) == [b"poison"]


@in_loop
async def test_cumulative(url: str, topic: str) -> None:
    async with Client(url) as client:
        consumer = await client.subscribe(topic, "s", **EARLIEST)
        producer = await client.create_producer(topic, batching_enabled=False)
        for n in range(4):
            await producer.send(b"%d" % n)
        messages = [await consumer.receive(WAIT) for _ in range(4)]
        async with client.transaction() as t:
            await consumer.acknowledge_cumulative(messages[1], transaction=t)
        await consumer.close()
        consumer = await client.subscribe(topic, "s")
        assert await contents(consumer, 2) == [b"2", b"3"]


@in_loop
async def test_acknowledgement_needs_an_open_transaction(url: str, topic: str) -> None:
    async with Client(url) as client:
        consumer: Consumer = await client.subscribe(topic, "s", **EARLIEST)  # type: ignore[assignment]
        await (await client.create_producer(topic)).send(b"one")
        message = await consumer.receive(WAIT)
        async with client.transaction() as t:
            pass
        with pytest.raises(InvalidTxnStatusError, match="COMMITTED"):
            await consumer.acknowledge(message, transaction=t)


@in_loop
async def test_a_closed_producer_fails_its_transaction(url: str, topic: str) -> None:
    async with Client(url) as client:
        producer = await client.create_producer(topic)

        async def work(t: Transaction) -> None:
            await producer.close()
            with pytest.raises(AlreadyClosed):
                await producer.send(b"late", transaction=t)

        await failing(client.transaction(), work, TransactionHasOperationFailed)
