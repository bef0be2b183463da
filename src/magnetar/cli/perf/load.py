"""A run of the load generator: warm-up, measurement window, and end. Producers work in a closed loop (as fast
as receipts permit), or messages are due at given times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from magnetar.cli.perf.ends import PerfSender, Receiver, Shared
from magnetar.cli.perf.measure import Counters
from magnetar.cli.perf.pacing import Alarm

_SECOND = 1_000_000_000
_DRAIN_SECONDS = 60.0
_CHECK_SECONDS = 0.02
_QUIET_SECONDS = 1.0
"""In a run that permits loss, messages count as lost once no message has arrived for this time, in
seconds.
"""


@dataclass(frozen=True)
class LoadPlan:
    """Duration, rate and number of messages of a run."""

    warmup: float
    """Length of the warm-up before the measurement window, in seconds."""
    seconds: float
    """Length of the measurement window in seconds; 0: the window lasts until :attr:`messages` messages are
    received.
    """
    messages: int
    """Number of messages, including the warm-up, after which the run ends; 0: no limit."""
    rate: float
    """Messages per second of all senders together; 0: closed loop."""
    server_pids: Sequence[int]
    max_behind: int = 0
    """In a closed loop: maximum number of messages of all senders that are sent and not yet received; 0: no
    limit.
    """
    lossy: bool = False
    """Whether messages may be lost, as on non-persistent topics."""
    begin_at: int = 0
    """Start time, in nanoseconds of the shared clock; 0: the run starts at once."""


class Pump:
    """Makes senders send at the planned rate, or as fast as receipts permit."""

    def __init__(self, senders: Sequence[PerfSender], plan: LoadPlan, shared: Shared, copies: int) -> None:
        """:param copies: how many receivers get each message; 0: unknown"""
        self._senders = senders
        self._copies = copies
        self._sent = 0
        # A lost message would count as not received for ever.
        self._max_behind = plan.max_behind if copies and not plan.lossy else 0
        self._waits = False
        self._rate = plan.rate
        self._shared = shared
        self._left = plan.messages or (1 << 62)
        self._running = False
        self._interval = round(_SECOND * len(senders) / plan.rate) if plan.rate > 0 and senders else 0
        self._due: list[int] = []
        self._next: list[tuple[int, int]] = []
        self._stalled: set[int] = set()
        self._alarm: Alarm | None = None
        self.ended = not senders
        """Whether all planned messages were sent."""

    async def open(self) -> None:
        for index, sender in enumerate(self._senders):
            await sender.open(lambda index=index: self._room(index))  # type: ignore[misc]

    def begin(self) -> None:
        self._running = True
        self._shared.on_received = self._received
        now = self._shared.clock.now()
        if self._interval:
            step = self._interval // len(self._senders)
            self._due = [now + index * step for index in range(len(self._senders))]
            self._next = [(due, index) for index, due in enumerate(self._due)]
            self._alarm = Alarm(asyncio.get_running_loop(), self._shared.clock, self._tick)
            self._tick()
            return
        for index in range(len(self._senders)):
            self._room(index)

    def end(self) -> None:
        """Stops sending."""
        self._running = False
        self.ended = True
        if self._alarm is not None:
            self._alarm.close()
            self._alarm = None
        for sender in self._senders:
            sender.flush()

    def _tick(self) -> None:
        """Sends the messages that are due, and schedules the next call for the time when the next message is
        due.
        """
        now = self._shared.clock.now()
        while self._next and self._next[0][0] <= now and self._running:
            self._send_due(heappop(self._next)[1], now)
        self._set_alarm()

    def _set_alarm(self) -> None:
        if self._running and self._alarm is not None and self._next:
            self._alarm.set(self._next[0][0])

    def _send_due(self, index: int, now: int) -> None:
        """Sends the due messages of one sender; if too many messages of the sender have no receipt, sends the
        rest later, when receipts arrive.
        """
        due = self._due[index]
        sender = self._senders[index]
        count = min((now - due) // self._interval + 1, sender.room(), self._left)
        if count > 0:
            self._due[index] = due + count * self._interval
            self._send(sender, count, due, self._interval)
        if self._due[index] > now:
            heappush(self._next, (self._due[index], index))
        else:
            self._stalled.add(index)

    def _room(self, index: int) -> None:
        """Called when receipts permit a sender to send further messages: sends them."""
        if not self._running:
            return
        if self._interval:
            if index in self._stalled:
                self._stalled.discard(index)
                self._send_due(index, self._shared.clock.now())
                self._set_alarm()
            return
        sender = self._senders[index]
        count = min(sender.room(), self._left)
        if self._max_behind:
            count = min(count, self._max_behind - self._behind())
            self._waits = self._waits or count <= 0
        if count > 0:
            self._send(sender, count, self._shared.clock.now(), 0)

    def _behind(self) -> int:
        """Returns the number of messages that are sent and not yet received."""
        return self._sent - self._shared.received // self._copies

    def _received(self) -> None:
        """Called when messages have arrived: if few enough messages are sent and not yet received, resumes
        the senders, which pause because of ``max_behind``.
        """
        if self._waits and self._running and self._behind() <= self._max_behind * 3 // 4:
            self._waits = False
            for index in range(len(self._senders)):
                self._room(index)

    def _send(self, sender: PerfSender, count: int, due: int, interval: int) -> None:
        sender.send(count, due, interval)
        self._sent += count
        self._left -= count
        if self._left <= 0:
            self.end()


class Load:
    """One run, with its senders, receivers and measurement window."""

    def __init__(
        self,
        plan: LoadPlan,
        shared: Shared,
        senders: Sequence[PerfSender],
        receivers: Sequence[Receiver],
        copies: int,
        report: Callable[[Load, float], object] | None = None,
        report_seconds: float = 1.0,
    ) -> None:
        """:param copies: how many receivers get each message; 0: unknown

        :param report: called every ``report_seconds`` with this load and the seconds since the last call
        """
        self.plan = plan
        self.shared = shared
        self.senders = senders
        self.receivers = receivers
        self.pump = Pump(senders, plan, shared, copies)
        self._copies = copies
        self._report = report
        self._report_seconds = report_seconds
        self.first: Counters | None = None
        self.last: Counters | None = None
        self.interrupted = False

    @property
    def published(self) -> int:
        return sum(sender.confirmed for sender in self.senders)

    @property
    def sent(self) -> int:
        return sum(sender.sent for sender in self.senders)

    @property
    def received(self) -> int:
        return sum(receiver.received for receiver in self.receivers)

    @property
    def size(self) -> int:
        """Total size of all received payloads, in bytes."""
        return sum(receiver.size for receiver in self.receivers)

    async def run(self) -> None:
        """Runs the load; does not close senders and receivers."""
        if not self.senders and self.plan.warmup <= 0:
            # A backlog is delivered as soon as consumers subscribe: all of it counts.
            self.first = self._snapshot()
        for receiver in self.receivers:
            await receiver.open()
        await self.pump.open()
        clock = self.shared.clock
        if self.plan.begin_at:
            await asyncio.sleep(max(0, self.plan.begin_at - clock.now()) / _SECOND)
        if self.plan.warmup > 0:
            self.pump.begin()
            await self._until(time.monotonic() + self.plan.warmup)
            if self._all_done():
                self.shared.failed(
                    "the run ended before the warm-up did, so nothing was measured; use --warmup-time 0"
                )
        # Without senders a message counts by its arrival, whatever its age.
        self.shared.window.first = clock.now() if self.senders else 0
        if self.first is None:
            self.first = self._snapshot()
        if self.plan.warmup <= 0:
            self.pump.begin()
        if not self.senders and self.plan.messages:
            self.shared.on_received = self._received_all
        await self._until(time.monotonic() + self.plan.seconds if self.plan.seconds else float("inf"))
        if self.plan.seconds and self.last is None:
            self._close_window()
        self.pump.end()
        if self._copies or self.senders:
            await self._drain()
        if self.last is None:
            self._close_window()
        for receiver in self.receivers:
            receiver.flush()

    def _received_all(self) -> None:
        """Ends the measurement window when the last message is received, so that a later check does not
        extend the window.
        """
        if self.last is None and self.received >= self.plan.messages:
            self._close_window()

    def interrupt(self) -> None:
        """Ends the run early; the results cover the time until then."""
        self.interrupted = True

    def _close_window(self) -> None:
        self.last = self._snapshot()
        self.shared.window.last = self.shared.clock.now()

    def _snapshot(self) -> Counters:
        return Counters.take(self.published, self.received, self.size, self.plan.server_pids)

    async def _until(self, end: float) -> None:
        """Waits until the run is done, interrupted or failed, but at most until ``end``, in seconds of the
        monotonic clock; reports live rates meanwhile.
        """
        next_report = time.monotonic() + self._report_seconds
        last_report = time.monotonic()
        while not self.shared.failures and not self.interrupted and not self._all_done():
            now = time.monotonic()
            if now >= end:
                return
            if self._report is not None and now >= next_report:
                self._report(self, now - last_report)
                last_report, next_report = now, now + self._report_seconds
            await asyncio.sleep(min(_CHECK_SECONDS, max(0.0, end - now)))

    def _all_done(self) -> bool:
        if self.senders:
            return self.pump.ended and self._is_drained()
        return bool(self.plan.messages) and self.received >= self.plan.messages

    def _is_drained(self) -> bool:
        sent = self.sent
        return self.published >= sent and (not self._copies or self.received >= sent * self._copies)

    @property
    def lost(self) -> int:
        """Number of missing deliveries: the number of messages with receipts, multiplied by the number of
        receivers of each message, minus the number of received messages.
        """
        return max(0, self.published * self._copies - self.received)

    def _is_quiet(self, received: int, since: float) -> bool:
        """Whether the run permits loss, all sent messages have receipts, and no message has arrived for some
        time.

        :param received: the number of received messages at the time ``since``
        :param since: the time since which no message has arrived, in seconds of the monotonic clock
        """
        quiet = self.received == received and time.monotonic() - since > _QUIET_SECONDS
        return self.plan.lossy and quiet and self.published >= self.sent

    async def _drain(self) -> None:
        end = time.monotonic() + _DRAIN_SECONDS
        received, since = self.received, time.monotonic()
        while not self.shared.failures and not self._is_drained():
            if self._is_quiet(received, since):
                return
            if self.received != received:
                received, since = self.received, time.monotonic()
            if time.monotonic() > end:
                self.shared.failed(
                    f"{_DRAIN_SECONDS:g} s after the end, only {self.published} of {self.sent} messages were"
                    f" confirmed and {self.received} of {self.sent * self._copies} received"
                )
                return
            await asyncio.sleep(_CHECK_SECONDS)

    async def close(self) -> None:
        for sender in self.senders:
            await sender.close()
        for receiver in self.receivers:
            await receiver.close()
