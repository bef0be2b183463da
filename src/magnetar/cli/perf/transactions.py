"""Load with transactions: producers and consumers that use transactions, and the command ``transaction``."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from magnetar.cli.perf.api_ends import ApiConsumer, ApiProducer
from magnetar.cli.perf.ends import ReceiveSettings, SendSettings, Shared
from magnetar.cli.perf.hot_raw import Histogram, OrderCheck
from magnetar.cli.perf.measure import cpu_seconds, milliseconds, resident_megabytes
from magnetar.client.client import Client
from magnetar.client.consumer import Consumer
from magnetar.client.enums import ConsumerType, InitialPosition
from magnetar.client.exceptions import InvalidConfiguration, PulsarException
from magnetar.client.gathered import TopicsConsumer
from magnetar.client.message import Message
from magnetar.client.outgoing_message import MessageOptions
from magnetar.client.partitioned import PartitionedConsumer, PartitionedProducer
from magnetar.client.producer import Producer
from magnetar.client.transactions import Transaction

T = TypeVar("T")
_CONTENT_BYTES = 1024
"""Size of a payload in bytes, as in Pulsar's ``pulsar-perf transaction``."""
_AGAIN_SECONDS = 0.02
"""Delay before a worker tries again to begin a transaction, in seconds."""
_MOST_FAILURES = 5
"""Maximum number of different errors that are reported."""
_TYPES = {"Exclusive": 0, "Shared": 1, "Failover": 2, "Key_Shared": 3}


@dataclass(frozen=True)
class TransactionUse:
    """The settings by which producers and consumers use transactions."""

    seconds: float
    """Time-out of a transaction, in seconds."""
    messages: int
    """Number of messages in a transaction."""
    aborts: bool
    """Whether transactions are aborted instead of committed."""

    @classmethod
    def of(cls, parsed: argparse.Namespace) -> TransactionUse | None:
        """Returns how ``produce`` or ``consume`` must use transactions; None: they use no transactions.

        :raises InvalidConfiguration: ``--raw`` is given
        """
        if not getattr(parsed, "txn_enable", False):
            return None
        if parsed.raw:
            raise InvalidConfiguration("--raw does not support -txn")
        return cls(parsed.txn_timeout, parsed.txn_messages, parsed.abort)

    async def end(self, transaction: Transaction) -> None:
        """Commits or aborts the transaction.

        :raises PulsarException: see :meth:`Transaction.commit`
        """
        await (transaction.abort() if self.aborts else transaction.commit())


class TransactionalProducer(ApiProducer):
    """A producer that sends in transactions; while a transaction is committed or aborted, the next one has
    already begun.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        number: int,
        settings: SendSettings,
        shared: Shared,
        extras: Mapping[str, object],
        transactions: TransactionUse,
    ) -> None:
        super().__init__(client, topic, number, settings, shared, extras)
        self._transactions = transactions
        self._plain = False
        self._current: Transaction | None = None
        self._left = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, on_room: Callable[[], object]) -> None:
        await super().open(on_room)
        await self._begin()

    async def _begin(self) -> None:
        self._current = await self._client.transaction(self._transactions.seconds).begin()
        self._left = self._transactions.messages

    def room(self) -> int:
        return min(super().room(), self._left)

    def send(self, count: int, due: int, interval: int) -> None:
        super().send(count, due, interval)
        self._left -= count
        if not self._left and self._current is not None:
            ended, self._current = self._current, None
            self._start(self._end(ended))
            self._start(self._next())

    def _options(self) -> MessageOptions:
        options = super()._options()
        if self._current is not None:
            options.transaction = self._current.begun()
        return options

    def _start(self, work: Coroutine[object, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _next(self) -> None:
        try:
            await self._begin()
        except PulsarException as error:
            self._shared.failed(f"{self._topic}: {error!r}")
        self._on_room()

    async def _end(self, transaction: Transaction) -> None:
        try:
            await self._transactions.end(transaction)
        except PulsarException as error:
            self._shared.failed(f"{self._topic}: {error!r}")

    async def close(self) -> None:
        await asyncio.gather(*self._tasks)
        if self._current is not None:
            await self._end(self._current)
        await super().close()


class TransactionalConsumer(ApiConsumer):
    """A consumer that acknowledges in transactions."""

    def __init__(
        self,
        client: Client,
        topic: str,
        settings: ReceiveSettings,
        shared: Shared,
        order: OrderCheck | None,
        transactions: TransactionUse,
    ) -> None:
        super().__init__(client, topic, settings, shared, order)
        self._transactions = transactions
        self._current: Transaction | None = None
        self._acknowledged: list[asyncio.Future[None]] = []
        self._acknowledging = asyncio.Lock()
        self._closing = False

    async def _acknowledge(
        self, end: Consumer | PartitionedConsumer | TopicsConsumer, message: Message
    ) -> None:
        async with self._acknowledging:
            if self._closing:
                return
            if self._current is None:
                self._current = await self._client.transaction(self._transactions.seconds).begin()
            call = end.acknowledge_cumulative if self._settings.cumulative else end.acknowledge
            self._acknowledged.append(asyncio.ensure_future(call(message, transaction=self._current)))
            if len(self._acknowledged) >= self._transactions.messages:
                await self._end_current()

    async def _end_current(self) -> None:
        acknowledged, self._acknowledged = self._acknowledged, []
        ended, self._current = self._current, None
        if ended is not None:
            await asyncio.gather(*acknowledged)
            await self._transactions.end(ended)

    async def close(self) -> None:
        # The consumer stays open until the transaction that is being ended, or the last one, has ended.
        async with self._acknowledging:
            self._closing = True
            try:
                await self._end_current()
            except PulsarException as error:
                self._shared.failed(f"{self._topic}: {error!r}")
        await super().close()


@dataclass
class WorkCounts:
    """Counts of what the workers of the command ``transaction`` have done so far."""

    opened: int = 0
    not_opened: int = 0
    ended: int = 0
    not_ended: int = 0
    sent: int = 0
    not_sent: int = 0
    acknowledged: int = 0
    not_acknowledged: int = 0
    latencies: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram() for name in ("begin", "send", "ack", "end")}
    )


class Workers:
    """The workers of the command ``transaction``. Each worker repeatedly receives messages, begins a
    transaction, acknowledges these messages and publishes new messages in the transaction, and ends the
    transaction.
    """

    def __init__(self, parsed: argparse.Namespace, client: Client) -> None:
        self._parsed = parsed
        self._client = client
        self._settings = TransactionUse(parsed.txn_timeout, 0, parsed.abort)
        self._content = os.urandom(_CONTENT_BYTES)
        self._left = parsed.number_txn or (1 << 62)
        self._turn = 0.0
        self._closing: list[Producer | PartitionedProducer | Consumer | PartitionedConsumer] = []
        self.counts = WorkCounts()
        self.stopped = False
        self.receiving: set[asyncio.Task[None]] = set()
        """The tasks of the workers that wait for messages."""
        self.failures: list[str] = []

    async def open(self) -> list[Callable[[], Awaitable[None]]]:
        """Opens the producers and consumers of all workers; returns one function per worker, which runs the
        worker.

        :raises PulsarException: a producer or consumer cannot be opened
        """
        return [await self._opened() for _ in range(self._parsed.num_test_threads)]

    async def _opened(self) -> Callable[[], Awaitable[None]]:
        parsed = self._parsed
        names = parsed.subscriptions
        if parsed.num_subscriptions != len(names):
            if len(names) > 1:
                raise InvalidConfiguration(
                    f"-ss names {len(names)} subscriptions, but -ns is {parsed.num_subscriptions}; "
                    "the numbers must be equal"
                )
            names = [f"{names[0]}-{index}" for index in range(parsed.num_subscriptions)]
        earliest = parsed.subscription_position == "Earliest"
        consumers = [
            await self._client.subscribe(
                topic,
                name,
                consumer_type=ConsumerType(_TYPES[parsed.subscription_type]),
                receiver_queue_size=parsed.receiver_queue_size,
                initial_position=InitialPosition.Earliest if earliest else InitialPosition.Latest,
                replicate_subscription_state_enabled=parsed.replicated,
                batch_index_ack_enabled=True,
            )
            for topic in parsed.topics_c
            for name in names
        ]
        producers = [await self._client.create_producer(topic) for topic in parsed.topics_p]
        self._closing += [*producers, *consumers]  # type: ignore[list-item]
        return lambda: self._work(producers, consumers)

    async def _work(
        self,
        producers: Sequence[Producer | PartitionedProducer],
        consumers: Sequence[Consumer | PartitionedConsumer | TopicsConsumer],
    ) -> None:
        parsed = self._parsed
        while not self.stopped and self._left > 0:
            await self._pace()
            received = await self._received(consumers)
            if self._left <= 0:
                break
            self._left -= 1
            transaction = None if parsed.txn_disable else await self._begin()
            if transaction is None and not parsed.txn_disable:
                for consumer, message in received:
                    consumer.negative_acknowledge(message)
                continue
            work = [self._acknowledge(consumer, message, transaction) for consumer, message in received]
            sends = [
                self._send(one, transaction) for one in producers for _ in range(parsed.messages_produced)
            ]
            await asyncio.gather(*work, *sends)
            await self._end(transaction)
        # Others may wait for messages of which this one took the last.
        for task in self.receiving:
            task.cancel()

    async def _received(
        self, consumers: Sequence[Consumer | PartitionedConsumer | TopicsConsumer]
    ) -> list[tuple[Consumer | PartitionedConsumer | TopicsConsumer, Message]]:
        """Waits for the messages that the next transaction will acknowledge; returns each with its
        consumer.
        """
        task: asyncio.Task[None] | None = asyncio.current_task()
        if task is not None:
            self.receiving.add(task)
        try:
            return [
                (consumer, await consumer.receive())
                for consumer in consumers
                for _ in range(self._parsed.messages_consumed)
            ]
        finally:
            self.receiving -= {task}

    async def _pace(self) -> None:
        if self._parsed.txn_rate:
            now = time.monotonic()
            self._turn = max(self._turn, now - 1 / self._parsed.txn_rate) + 1 / self._parsed.txn_rate
            await asyncio.sleep(max(0.0, self._turn - now))

    async def _begin(self) -> Transaction | None:
        try:
            made = self._client.transaction(self._settings.seconds)
            found = await self._timed("begin", made.begin())
        except PulsarException as error:
            self.counts.not_opened += 1
            self._note(error)
            await asyncio.sleep(_AGAIN_SECONDS)
            return None
        self.counts.opened += 1
        return found

    async def _send(self, producer: Producer | PartitionedProducer, transaction: Transaction | None) -> None:
        try:
            await self._timed("send", producer.send(self._content, transaction=transaction))
            self.counts.sent += 1
        except PulsarException as error:
            self.counts.not_sent += 1
            self._note(error)

    async def _acknowledge(
        self,
        consumer: Consumer | PartitionedConsumer | TopicsConsumer,
        message: Message,
        transaction: Transaction | None,
    ) -> None:
        try:
            await self._timed("ack", consumer.acknowledge(message, transaction=transaction))
            self.counts.acknowledged += 1
        except PulsarException as error:
            self.counts.not_acknowledged += 1
            self._note(error)

    async def _end(self, transaction: Transaction | None) -> None:
        try:
            if transaction is not None:
                await self._timed("end", self._settings.end(transaction))
            self.counts.ended += 1
        except PulsarException as error:
            self.counts.not_ended += 1
            self._note(error)

    async def _timed(self, name: str, work: Awaitable[T]) -> T:
        began = time.monotonic_ns()
        result = await work
        self.counts.latencies[name].record(time.monotonic_ns() - began)
        return result

    def _note(self, error: PulsarException) -> None:
        if len(self.failures) < _MOST_FAILURES and repr(error) not in self.failures:
            self.failures.append(repr(error))
            sys.stderr.write(f"pulsar-perf: {error}\n")

    async def close(self) -> None:
        for each in self._closing:
            await each.close()


async def transaction_load(parsed: argparse.Namespace, client: Client) -> dict[str, object]:
    """Runs the command ``transaction``; returns its results.

    :raises PulsarException: a producer or consumer cannot be opened
    """
    workers = Workers(parsed, client)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    made = await workers.open()
    tasks = [asyncio.ensure_future(work()) for work in made]

    def one_ended(_task: asyncio.Future[None]) -> None:
        if all(each.done() for each in tasks):
            ended.set()

    for task in tasks:
        task.add_done_callback(one_ended)
    await _until(ended, parsed.warmup_time)
    workers.counts = WorkCounts()
    began, own, server = time.monotonic(), time.process_time(), cpu_seconds(parsed.server_pid)
    await _until(ended, parsed.test_duration or float("inf"), workers, parsed.stats_interval_seconds)
    counts, seconds = workers.counts, max(time.monotonic() - began, 1e-9)
    own, server = time.process_time() - own, cpu_seconds(parsed.server_pid) - server
    # Work that is still in progress is not counted in the results.
    workers.counts, workers.stopped = WorkCounts(), True
    for task in workers.receiving:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            workers.failures.append(repr(outcome))
    await workers.close()
    return _figures(parsed, counts, seconds, own, server, workers.failures)


async def _until(
    ended: asyncio.Event, seconds: float, workers: Workers | None = None, each: float = 0
) -> None:
    end = time.monotonic() + seconds
    done = 0
    while not ended.is_set() and (left := end - time.monotonic()) > 0:
        try:
            await asyncio.wait_for(ended.wait(), min(left, each) if each else left)
        except TimeoutError:
            if workers is not None and each:
                now = workers.counts.ended
                sys.stderr.write(f"transactions {(now - done) / each:>9,.1f} /s  ended {now:,}\n")
                done = now


def _figures(
    parsed: argparse.Namespace,
    counts: WorkCounts,
    seconds: float,
    own: float,
    server: float,
    failures: Sequence[str],
) -> dict[str, object]:
    each = max(counts.ended, 1)
    void = None if counts.ended else "; ".join(failures) or "no transaction ended in the measured window"
    result: dict[str, object] = {
        "void": void,
        "command": "transaction",
        "seconds": round(seconds, 3),
        "transactions": counts.ended,
        "transaction_rate": round(counts.ended / seconds, 3),
        "opened": counts.opened,
        "not_opened": counts.not_opened,
        "not_ended": counts.not_ended,
        "sent": counts.sent,
        "not_sent": counts.not_sent,
        "acknowledged": counts.acknowledged,
        "not_acknowledged": counts.not_acknowledged,
    }
    for name, histogram in counts.latencies.items():
        result[f"{name}_latency_ms"] = milliseconds(histogram)
    result["own_cpu_us_per_transaction"] = round(own / each * 1e6, 1)
    if parsed.server_pid:
        result["server_cpu_us_per_transaction"] = round(server / each * 1e6, 1)
        result["server_cores"] = round(server / seconds, 3)
        result["server_rss_mb"] = resident_megabytes(parsed.server_pid)
    return result


def lines_of(result: Mapping[str, object]) -> list[str]:
    """Formats the results of :func:`transaction_load` as lines."""
    lines = [
        f"measured {result['seconds']:.1f} s: {result['transactions']:,} transactions ended,"
        f" {result['transaction_rate']:,.1f} /s; {result['opened']:,} opened,"
        f" {result['not_opened']} not opened, {result['not_ended']} not ended",
        f"messages: {result['sent']:,} sent, {result['not_sent']} not sent, {result['acknowledged']:,}"
        f" acknowledged, {result['not_acknowledged']} not acknowledged",
    ]
    for name in ("begin", "send", "ack", "end"):
        latency = result[f"{name}_latency_ms"]
        if isinstance(latency, dict):
            lines.append(
                f"{name} latency, ms: " + "  ".join(f"{key} {value:.3f}" for key, value in latency.items())
            )
    lines.append(f"own CPU {result['own_cpu_us_per_transaction']:.0f} us a transaction")
    if "server_cores" in result:
        lines.append(
            f"server CPU {result['server_cpu_us_per_transaction']:.0f} us a transaction,"
            f" {result['server_cores']:.2f} cores, {result['server_rss_mb']:.0f} MB resident"
        )
    return lines
