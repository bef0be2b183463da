"""The injected faults; they act in the broker's process, between the broker and its clients."""

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
    """The clients that a fault affects; a field that is None matches all clients."""

    topic: TopicName | None = None
    """Only clients on this topic; the name of a partitioned topic stands for all its partitions."""
    name: str | None = None
    """Only producers or consumers with this name."""

    def meets(self, topic: TopicName, name: str) -> bool:
        if self.topic is not None and self.topic not in (topic, topic.base):
            return False
        return self.name is None or self.name == name


@dataclass(frozen=True, slots=True)
class InjectedRefusal:
    """The fault that refuses messages and producers."""

    whom: Whom
    code: ServerErrorCode
    reason: str


@dataclass(slots=True)
class Hold:
    """The fault that holds back receipts."""

    whom: Whom
    seconds: float | None
    """Delay of each receipt, in seconds of the real clock; None: receipts are held back until they are
    released.
    """
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
    """The active faults of a broker, by their numbers."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        """The event loop with the real clock, because clients use real time."""
        self.ahead_ms: Callable[[], int] = lambda: 0
        """Returns by how many milliseconds the broker's clock is ahead of the real clock."""
        self.advancing = False
        """Whether the clock is being advanced; meanwhile, time passes faster than clients can answer."""
        self.awaited: UnderWay | None = None
        """Work in progress, for which advancing the clock must wait."""
        # By the numbers of the test.
        self.refusals: dict[int, InjectedRefusal] = {}
        self.holds: dict[int, Hold] = {}
        self.cuts: set[int] = set()
        """The numbers of the active faults that make the broker unreachable; connections break while the set
        is not empty.
        """

    def held(self, number: int) -> int:
        """Returns the number of receipts that a fault holds back.

        0: the fault has ended, or was not activated since the broker's last start.
        """
        hold = self.holds.get(number)
        return len(hold.held) if hold is not None else 0

    def release(self, number: int) -> int:
        """Sends the receipts that a fault holds back; returns their number."""
        hold = self.holds.get(number)
        return hold.release() if hold is not None else 0

    def end(self, number: int) -> None:
        """Ends a fault, and sends the receipts that it holds back. Does nothing for an unknown number."""
        self.refusals.pop(number, None)
        self.cuts.discard(number)
        hold = self.holds.pop(number, None)
        if hold is not None:
            hold.release()

    def refusal(self, topic: TopicName, name: str) -> InjectedRefusal | None:
        return next((each for each in self.refusals.values() if each.whom.meets(topic, name)), None)

    def hold_of(self, topic: TopicName, name: str) -> Hold | None:
        return next((each for each in self.holds.values() if each.whom.meets(topic, name)), None)
