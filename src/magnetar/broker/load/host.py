"""The resources of a machine, and their use."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.load.reports import Resources, Usage
from magnetar.io.interfaces import Clock
from magnetar.lazy_dataclass import dataclass

_MIB = 1024 * 1024
_KBIT_BYTES = 125


@dataclass(frozen=True, slots=True)
class HostSample:
    """The present counters of a machine."""

    processor_seconds: float
    """Of all cores, for any work, from an arbitrary start."""
    cores: float
    resident_bytes: int
    """Of this process."""
    memory_bytes: int
    """The most that the process may use."""
    received_bytes: int = 0
    sent_bytes: int = 0
    nic_kbits: float = 0.0
    """Speed of all network cards together, per second; 0: unknown."""


class Host(Protocol):
    """The machine; tests have another implementation."""

    def sample(self) -> HostSample: ...


class Meter:
    """Calculates usage from counters.

    The CPU usage is the larger of two: that of the machine, and that of the thread of the event loop. When
    that thread has no time left the broker is saturated, whatever the other cores do. Measuring it costs a
    system call per look, and nothing per message.
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
        """Returns the usage since the last call; called in the event loop.

        :param host_seconds: the machine is measured again after this time
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
