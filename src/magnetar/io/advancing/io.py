"""An :class:`Io` whose time can be put ahead, and how that is done."""

from __future__ import annotations

from dataclasses import replace

from magnetar.io.advancing.clock import AdvancingClock
from magnetar.io.advancing.loop import AdvancingLoop, QuietLoop
from magnetar.io.advancing.under_way import CountedProcess, CountedWorker, UnderWay
from magnetar.io.interfaces import Io, Service

FINE_SECONDS = 600.0
"""The end of an advance is gone through timer by timer: what follows from another has happened by then."""
_FINE_STRIDES = 600
_COARSE_STRIDES = 60
_SOON_SECONDS = 0.1
"""What waits for so short a time is a pause in work that is under way."""
_MOST_PAUSES = 200
_REST_SECONDS = 0.25
"""Real ones, that a stride waits for rest: where clients go on meanwhile there may be none."""
_LONGEST_SECONDS = 3.0
"""Real ones. After that what is left is one stride."""


class AdvancingIo:
    """Puts an :class:`Io` together that is ``real`` but for its time."""

    def __init__(self, real: Io, loop: QuietLoop, ahead: float = 0.0) -> None:
        """:param real: on ``loop``

        :param ahead: seconds that its time is ahead from the start
        """
        self._real_loop = loop
        self.under_way = UnderWay(loop)
        """Time waits for it."""
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
        """Returns when what is due in ``seconds`` from now has happened, with all that follows at once.

        Time goes from one timer to the next. Over a long span strides are longer, a sixtieth of it, until
        ten minutes before the end: what happens every minute does not happen 1,440 times in a day. Work that
        pauses for less than a tenth of a second is seen through: time may be that much further in the end.

        :param seconds: 0 or more
        :returns: False when the loop never came to rest: somebody kept it busy meanwhile
        """
        loop = self.loop
        begin = loop.time()
        end = begin + seconds
        fine = max(begin, end - FINE_SECONDS)
        until = self._real_loop.time() + _LONGEST_SECONDS
        rested = await self.under_way.rest(_REST_SECONDS)
        for part_end, strides in ((fine, _COARSE_STRIDES), (end, _FINE_STRIDES)):
            least = (part_end - loop.time()) / strides
            while (left := part_end - loop.time()) > 0:
                if self._real_loop.time() >= until:
                    least = left
                due = loop.next_due()
                wanted = left if due is None else max(due - loop.time(), least)
                loop.skip(min(left, wanted))
                rested = await self.under_way.rest(_REST_SECONDS)
        return await self._see_through() and rested

    async def _see_through(self) -> bool:
        """Ends the pauses of work that is under way."""
        rested = True
        for _ in range(_MOST_PAUSES):
            due = self.loop.next_due()
            if due is None or due - self.loop.time() > _SOON_SECONDS:
                break
            self.loop.skip(max(due - self.loop.time(), 0.0))
            rested = await self.under_way.rest(_REST_SECONDS)
        return rested
