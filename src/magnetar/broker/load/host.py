"""What a machine has, and how much of it is in use."""

from __future__ import annotations

from typing import Protocol

from magnetar.broker.load.reports import Resources, Usage
from magnetar.io.interfaces import Clock
from magnetar.lazy_dataclass import dataclass

_MIB = 1024 * 1024
_KBIT_BYTES = 125


@dataclass(frozen=True, slots=True)
class HostSample:
    """Counters of a machine, as they are now."""

    processor_seconds: float
    """Of all cores, spent on anything, since whenever."""
    cores: float
    resident_bytes: int
    """Of this process."""
    memory_bytes: int
    """That it may take."""
    received_bytes: int = 0
    sent_bytes: int = 0
    nic_kbits: float = 0.0
    """Of all network cards together, a second; 0: not known."""


class Host(Protocol):
    """The machine; a real one, and one of tests."""

    def sample(self) -> HostSample: ...


class Meter:
    """From counters to usage.

    The processor counts as the larger of two shares: of the machine, and of the one thread that serves
    everybody. When that one has no time left the broker is full, whatever other cores do. Asking it costs a
    system call for each look, nothing for a message.
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
        """Of the time since it was last asked; called in the loop.

        :param host_seconds: the machine is looked at when that has passed since it was
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
