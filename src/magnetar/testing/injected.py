"""The faults that are injected between a broker and its clients, in the broker's process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from magnetar.errors import ServerErrorCode
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.io.advancing.under_way import UnderWay


@dataclass(frozen=True, slots=True)
class Whom:
    """The clients that a fault affects; None matches all."""

    topic: TopicName | None = None
    """The topic; a partitioned topic matches each of its partitions."""
    name: str | None = None
    """The name of a producer or a consumer."""

    def meets(self, topic: TopicName, name: str) -> bool:
        if self.topic is not None and self.topic not in (topic, topic.base):
            return False
        return self.name is None or self.name == name


@dataclass(frozen=True, slots=True)
class InjectedRefusal:
    """Refuses messages and producers."""

    whom: Whom
    code: ServerErrorCode
    reason: str


@dataclass(slots=True)
class Hold:
    """Holds back receipts."""

    whom: Whom
    seconds: float | None
    """Delay of each receipt in seconds of the real clock; None: until the receipts are released."""
    held: deque[Callable[[], object]] = field(default_factory=deque)
    """Functions that each send a held receipt, in order."""

    def release(self) -> int:
        """Sends all held receipts in order; returns their number."""
        released = len(self.held)
        while self.held:
            self.release_next()
        return released

    def release_next(self) -> None:
        if self.held:
            self.held.popleft()()


class Faults:
    """The active faults."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        """The real loop, because clients use real time."""
        self.ahead_ms: Callable[[], int] = lambda: 0
        """Returns the lead of the broker's clock."""
        self.advancing = False
        """Whether the clock is being advanced, which is faster than clients can answer."""
        self.awaited: UnderWay | None = None
        """Work that an advance waits for."""
        # By the numbers of the test.
        self.refusals: dict[int, InjectedRefusal] = {}
        self.holds: dict[int, Hold] = {}
        self.cuts: set[int] = set()
        """Connections are refused while there are any."""

    def held(self, number: int) -> int:
        """Returns the number of held receipts; 0 for a fault of an earlier start."""
        hold = self.holds.get(number)
        return len(hold.held) if hold is not None else 0

    def release(self, number: int) -> int:
        """Sends the held receipts of a fault; returns their number."""
        hold = self.holds.get(number)
        return hold.release() if hold is not None else 0

    def end(self, number: int) -> None:
        """Ends a fault, and sends held receipts. Does nothing for an unknown number."""
        self.refusals.pop(number, None)
        self.cuts.discard(number)
        hold = self.holds.pop(number, None)
        if hold is not None:
            hold.release()

    def refusal(self, topic: TopicName, name: str) -> InjectedRefusal | None:
        return next((each for each in self.refusals.values() if each.whom.meets(topic, name)), None)

    def hold_of(self, topic: TopicName, name: str) -> Hold | None:
        return next((each for each in self.holds.values() if each.whom.meets(topic, name)), None)
