"""An :class:`Io` whose time can be advanced, and the steps of an advance."""

from __future__ import annotations

import math
from dataclasses import replace

from magnetar.io.advancing.loop import AdvancingLoop, QuietLoop
from magnetar.io.advancing.under_way import CountedProcess, CountedWorker, UnderWay
from magnetar.io.interfaces import Clock, Io, Service

FINE_SECONDS = 600.0
"""Length of the last part of an advance, in seconds of the advanced clock.

In this part, time moves from one timer to the next, each time after the consequences of earlier timers.
"""
_FINE_STRIDES = 600
_COARSE_STRIDES = 60
_SOON_SECONDS = 0.1
"""A timer that is due within this time, in seconds, counts as a pause of work in progress."""
_MOST_PAUSES = 200
_REST_SECONDS = 0.25
"""Maximum real time for which a step waits until the loop is quiet, in seconds.

With active clients, the loop may never be quiet.
"""
_LAST_REST_SECONDS = 2.0
"""Maximum real time for which an advance waits at its end until the loop is quiet, in seconds, for example on
a slow disk.
"""
_LONGEST_SECONDS = 3.0
"""If an advance has taken this long, in seconds of real time, the rest of it is made in one step."""


class AdvancingIo:
    """Provides :attr:`io`, an :class:`Io` that equals ``real`` except for its time."""

    def __init__(self, real: Io, loop: QuietLoop, ahead: float = 0.0) -> None:
        """:param real: the interfaces of ``loop``
        :param ahead: how far the clock is ahead of the real clock at the start, in seconds
        """
        self._real_loop = loop
        self.under_way = UnderWay(loop)
        """Counts work in progress, during which time does not advance."""
        self.loop = AdvancingLoop(loop, ahead)

        def start_worker(name: str) -> CountedWorker:
            return CountedWorker(real.start_worker(name), self.under_way)

        def start_process(name: str, service: Service) -> CountedProcess:
            return CountedProcess(real.start_process(name, service), self.under_way)

        self.io = replace(
            real,
            loop=self.loop,
            clock=AdvancingClock(real.clock, self.loop),
            start_worker=start_worker,
            start_process=start_process,
        )

    async def advance(self, seconds: float) -> bool:
        """Returns when all timers due within ``seconds`` from now have fired, and their immediate
        consequences are done.

        Time advances from one timer to the next. Before the last ten minutes of a long advance, each step is
        at least a sixtieth of the time up to then, so that work of every minute does not run 1,440 times per
        day. Timers that are due less than a tenth of a second after the end, or after one another, also fire,
        so the final time may be later.

        :param seconds: 0 or more
        :returns: False if the loop never became quiet, because it was kept busy
        """
        loop = self.loop
        begin = loop.time()
        end = begin + seconds
        fine = max(begin, end - FINE_SECONDS)
        until = self._real_loop.time() + _LONGEST_SECONDS
        await self.under_way.rest(_REST_SECONDS)
        for part_end, strides in ((fine, _COARSE_STRIDES), (end, _FINE_STRIDES)):
            least = (part_end - loop.time()) / strides
            while (left := part_end - loop.time()) > 0:
                if self._real_loop.time() >= until:
                    least = left
                due = loop.next_due()
                wanted = left if due is None else max(due - loop.time(), least)
                loop.skip(min(left, wanted))
                await self.under_way.rest(_REST_SECONDS)
        await self._see_through()
        return await self.under_way.rest(_LAST_REST_SECONDS)

    async def _see_through(self) -> None:
        """Advances the clock to the next timer, repeatedly, as long as the next timer is due soon: such
        timers are pauses of work in progress. Stops after 200 times.
        """
        for _ in range(_MOST_PAUSES):
            due = self.loop.next_due()
            if due is None or due - self.loop.time() > _SOON_SECONDS:
                break
            self.loop.skip(max(due - self.loop.time(), 0.0))
            await self.under_way.rest(_REST_SECONDS)


class AdvancingClock:
    """Implements :class:`magnetar.io.interfaces.Clock` with the advanced time."""

    def __init__(self, real: Clock, loop: AdvancingLoop) -> None:
        self._real = real
        self._loop = loop

    def wall_ms(self) -> int:
        # Rounded up: what was advanced is reached even though the real time is rounded down.
        return self._real.wall_ms() + math.ceil(self._loop.ahead * 1000)

    def monotonic(self) -> float:
        return self._real.monotonic() + self._loop.ahead

    def processor(self) -> float:
        return self._real.processor()
