"""A broker's load report in the metadata store, with the load of its bundles and of the machine."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Protocol

from magnetar.broker.load.reports import BrokerReport, BundleStats, Identity, Resources, Usage, new_report
from magnetar.broker.load.settings import LoadSettings
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Cancellable, Clock, Io
from magnetar.io.slices import PAUSE_SECONDS, each
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MetadataError
from magnetar.naming.bundles import Bundles
from magnetar.naming.namespace_name import NamespaceName

log = logging.getLogger(__name__)
Record = Mapping[str, object]
_MIB = 1024 * 1024
_KBIT_BYTES = 125


class Reporter:
    """Measures the broker's load periodically; writes a report if values have changed enough, or a longer
    interval has passed."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        meter: Meter,
        settings: Callable[[], LoadSettings],
        identity: Callable[[], Identity],
        stats: Callable[[], Awaitable[Mapping[str, BundleStats]]],
        write: Callable[[Record], Awaitable[None]],
    ) -> None:
        """:param write: stores the record in the metadata; raises MetadataError"""
        self._io = io
        self._wheel = wheel
        self._meter = meter
        self._settings = settings
        self._identity = identity
        self._stats = stats
        self._write = write
        self._written: BrokerReport | None = None
        self._latest: BrokerReport | None = None
        self._timer: Cancellable | None = None
        self._tasks = TaskScope(io.loop, "load reports", owner_goes_on)

    def first_record(self) -> Record:
        """Returns the record to write before any bundle is served."""
        self._latest = self._written = self._report({})
        return self._written.to_json()

    @property
    def latest(self) -> BrokerReport:
        """Returns the last measurement, whether it was written or not."""
        return self._latest or self._report({})

    def start(self) -> None:
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._tasks.cancel()

    def _schedule(self) -> None:
        self._timer = self._wheel.schedule(self._settings().report.min_seconds, self._begin)

    def _begin(self) -> None:
        self._tasks.start(self._run(), "a report")

    async def _run(self) -> None:
        try:
            await self.look()
        except MetadataError as error:
            log.warning("cannot write the load report; trying again later", extra={"error": str(error)})
        finally:
            self._schedule()

    async def look(self, *, write: bool = False) -> bool:
        """Measures the load, and writes a report if there is a reason; returns whether the report was
        written.

        :param write: whether to write without a reason
        :raises MetadataError: the record cannot be written; the next call tries again
        """
        report = self._latest = self._report(await self._stats())
        if not write and not self._differs(report):
            return False
        await self._write(report.to_json())
        self._written = report
        return True

    def _report(self, stats: Mapping[str, BundleStats]) -> BrokerReport:
        resources = self._meter.take(self._settings().report.host_seconds)
        return new_report(self._identity(), resources, stats, self._written, self._io.clock.wall_ms())

    def _differs(self, now: BrokerReport) -> bool:
        before, settings = self._written, self._settings()
        if before is None or now.identity != before.identity:
            return True
        if now.updated_ms - before.updated_ms > 1000 * settings.report.max_seconds:
            return True
        usage = abs(now.resources.weighed(settings.weights) - before.resources.weighed(settings.weights))
        changes = (
            _change(before.total.rate, now.total.rate),
            _change(before.total.throughput, now.total.throughput),
            _change(len(before.bundles), len(now.bundles)),
            usage,
        )
        return max(changes) > settings.report.change


def _change(before: float, now: float) -> float:
    """Returns the change as a fraction of the former value."""
    if before:
        return abs((before - now) / before)
    return inf if now else 0.0


@dataclass(slots=True)
class _Sums:
    rate_in: float = 0.0
    throughput_in: float = 0.0
    rate_out: float = 0.0
    throughput_out: float = 0.0
    consumers: int = 0
    producers: int = 0
    topics: int = 0

    def add(self, topic: AnyTopic) -> None:
        self.rate_in += topic.rate_in.per_second
        self.throughput_in += topic.rate_in.bytes_per_second
        self.rate_out += topic.rate_out.per_second
        self.throughput_out += topic.rate_out.bytes_per_second
        self.consumers += topic.subscriptions.consumer_count()
        self.producers += len(topic.producers)
        self.topics += 1

    def done(self) -> BundleStats:
        return BundleStats(
            self.rate_in,
            self.throughput_in,
            self.rate_out,
            self.throughput_out,
            self.consumers,
            self.producers,
            self.topics,
        )


async def bundle_stats(served: ServedTopics) -> Mapping[str, BundleStats]:
    """Returns the traffic of each bundle that this broker serves, by full name, from the rates of topics.

    Bundles without a loaded topic are missing, as in Pulsar.
    """
    topics = list(served.loaded.values())
    divided: dict[NamespaceName, Bundles] = {}
    for namespace in dict.fromkeys(topic.name.namespace_name for topic in topics):
        try:
            divided[namespace] = await served.bundles.of_namespace(namespace)
        except BrokerError:
            # The bundle is being unloaded, or the namespace's bundles cannot be read now.
            continue
    sums: dict[str, _Sums] = {}

    def take(topic: AnyTopic) -> None:
        name = topic.name
        bundles = divided.get(name.namespace_name)
        if bundles is not None:
            bundle = f"{name.namespace_name}/{bundles.find(name.bundle_hash)}"
            sums.setdefault(bundle, _Sums()).add(topic)

    await each(served.io, "load report", topics, take, pause=PAUSE_SECONDS)
    return {bundle: found.done() for bundle, found in sums.items()}


@dataclass(frozen=True, slots=True)
class HostSample:
    """The current counters of a machine."""

    processor_seconds: float
    """The CPU time that all processes have used on all cores, in seconds from an arbitrary start."""
    cores: float
    resident_bytes: int
    """The resident memory of this process in bytes."""
    memory_bytes: int
    """The maximum memory that the process may use, in bytes."""
    received_bytes: int = 0
    sent_bytes: int = 0
    nic_kbits: float = 0.0
    """The speed of all network cards together, in kbit per second; 0: unknown."""


class Host(Protocol):
    """Measures the machine; tests use another implementation."""

    def sample(self) -> HostSample: ...


class Meter:
    """Computes the usage from counters.

    The CPU usage is the larger of two: the machine's, and that of the event loop's thread. When the thread
    has no time left, the broker is saturated, whatever the other cores do. Each measurement takes one system
    call; messages cause no work.
    """

    def __init__(self, clock: Clock, host: Host) -> None:
        self._clock = clock
        self._host = host
        self._sample = host.sample()
        self._sampled = clock.monotonic()
        self._loop = (self._sampled, clock.processor())
        self._machine = Usage(0.0, 100.0 * self._sample.cores)
        self._received = self._sent = Usage(0.0, self._sample.nic_kbits)
        self._thread = Usage(0.0, 100.0)

    def take(self, host_seconds: float) -> Resources:
        """Returns the usage since the last call; called on the event loop.

        :param host_seconds: the time in seconds after which the machine is measured again
        """
        now, used = self._clock.monotonic(), self._clock.processor()
        before, used_before = self._loop
        if now > before:
            self._thread = Usage(min(100.0, 100.0 * (used - used_before) / (now - before)), 100.0)
            self._loop = now, used
        if now - self._sampled >= host_seconds:
            self._look_at_host(now)
        memory = Usage(self._sample.resident_bytes / _MIB, self._sample.memory_bytes / _MIB)
        processor = max(self._machine, self._thread, key=lambda usage: usage.percent)
        return Resources(processor, memory, Usage(0.0, memory.limit), self._received, self._sent)

    def _look_at_host(self, now: float) -> None:
        before, seconds = self._sample, now - self._sampled
        self._sample, self._sampled = sample, _ = self._host.sample(), now
        limit = 100.0 * sample.cores
        used = 100.0 * (sample.processor_seconds - before.processor_seconds) / seconds
        self._machine = Usage(max(0.0, min(limit, used)), limit)
        self._received = _flow(sample.received_bytes - before.received_bytes, seconds, sample.nic_kbits)
        self._sent = _flow(sample.sent_bytes - before.sent_bytes, seconds, sample.nic_kbits)


def _flow(count: int, seconds: float, limit: float) -> Usage:
    return Usage(max(0, count) / _KBIT_BYTES / seconds, limit)
