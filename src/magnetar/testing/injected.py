"""What is to go wrong between a broker and its clients, as the broker's process knows it."""

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
    """Whom a fault meets; what is None matters not."""

    topic: TopicName | None = None
    """Of a partitioned topic: each of its partitions."""
    name: str | None = None
    """Of a producer or a consumer."""

    def meets(self, topic: TopicName, name: str) -> bool:
        if self.topic is not None and self.topic not in (topic, topic.base):
            return False
        return self.name is None or self.name == name


@dataclass(frozen=True, slots=True)
class InjectedRefusal:
    """What is published is refused, and so are producers."""

    whom: Whom
    code: ServerErrorCode
    reason: str


@dataclass(slots=True)
class Hold:
    """Receipts are held back."""

    whom: Whom
    seconds: float | None
    """Real ones, for each; None: until they are released."""
    held: deque[Callable[[], object]] = field(default_factory=deque)
    """Each sends a receipt."""

    def release(self) -> int:
        """Sends all that is held, in the order of the receipts; answers how many there were."""
        released = len(self.held)
        while self.held:
            self.release_next()
        return released

    def release_next(self) -> None:
        if self.held:
            self.held.popleft()()


class Faults:
    """Those that are on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        """The real one: clients wait by no other time."""
        self.ahead_ms: Callable[[], int] = lambda: 0
        """How far the broker's clock is ahead."""
        self.advancing = False
        """Whether time is being put ahead: clients cannot answer as fast as it goes."""
        self.awaited: UnderWay | None = None
        """What an advance waits for."""
        # By numbers that the test gives.
        self.refusals: dict[int, InjectedRefusal] = {}
        self.holds: dict[int, Hold] = {}
        self.cuts: set[int] = set()
        """Nobody is let in while there are any."""

    def held(self, number: int) -> int:
        """How many receipts a hold has; none when it is none, or not of this life of the broker."""
        hold = self.holds.get(number)
        return len(hold.held) if hold is not None else 0

    def release(self, number: int) -> int:
        """Sends what a hold has; answers how many receipts that were."""
        hold = self.holds.get(number)
        return hold.release() if hold is not None else 0

    def end(self, number: int) -> None:
        """What was held is sent. Nothing happens when there is none of that number."""
        self.refusals.pop(number, None)
        self.cuts.discard(number)
        hold = self.holds.pop(number, None)
        if hold is not None:
            hold.release()

    def refusal(self, topic: TopicName, name: str) -> InjectedRefusal | None:
        return next((each for each in self.refusals.values() if each.whom.meets(topic, name)), None)

    def hold_of(self, topic: TopicName, name: str) -> Hold | None:
        return next((each for each in self.holds.values() if each.whom.meets(topic, name)), None)
