"""What a topic's subscriptions owe their consumers: a reference model that knows nothing of the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from simulation.trace import Violation

Position = tuple[int, int]


@dataclass(eq=False)
class Stored:
    """An entry that its producer was told is stored."""

    key: str
    payload: bytes
    messages: int
    time: int
    """When it was published; later entries have later times."""
    due: int = 0
    """When it is to be delivered, in ms of the wall clock; 0: at once."""


@dataclass
class Topic:
    """All that is known to be stored, by position. No entry is stored twice."""

    entries: dict[Position, Stored] = field(default_factory=dict)
    _places: dict[bytes, Position] = field(default_factory=dict)
    now: Callable[[], int] = lambda: 0
    """The wall clock, in ms."""

    def found(self, position: Position, stored: Stored) -> None:
        """An entry is there: its producer, or a consumer, was told so.

        :raises Violation: it is somewhere else as well, or something else is there
        """
        if self._places.setdefault(stored.payload, position) != position:
            raise Violation(f"{stored.payload!r} is at {position}, and at {self._places[stored.payload]}")
        if self.entries.setdefault(position, stored) is not stored:
            raise Violation(f"{position} is {stored.payload!r} and {self.entries[position].payload!r}")

    def is_placed(self, stored: Stored) -> bool:
        """Whether it is known where an entry is."""
        return stored.payload in self._places


@dataclass
class SubscriptionState:
    """What one subscription has delivered and what was acknowledged.

    A batch that is acknowledged in part has its remaining messages, as bits, in ``parts``.
    """

    kind: str
    topic: Topic
    begins: int = 0
    """Entries that were published before this time count as consumed: somebody sought to it."""
    acked: dict[Position, float] = field(default_factory=dict)
    """When it was acknowledged."""
    parts: dict[Position, tuple[int, float]] = field(default_factory=dict)
    doubtful: set[Position] = field(default_factory=set)
    """Acknowledged, at least in part, a moment before a SIGKILL: it may come again, or not."""
    holders: dict[Position, str] = field(default_factory=dict)
    counts: dict[Position, int] = field(default_factory=dict)
    last: dict[str, Position] = field(default_factory=dict)
    """The last position of each consumer in order."""
    deliveries: int = 0

    @property
    def shared(self) -> bool:
        return self.kind in ("Shared", "Key_Shared")

    def owed(self) -> set[Position]:
        """What must still be delivered and acknowledged."""
        owed = {position for position, stored in self.topic.entries.items() if stored.time >= self.begins}
        return owed - self.acked.keys() - self.doubtful

    def full(self, position: Position) -> int:
        return (1 << self.topic.entries[position].messages) - 1

    # What consumers see

    def delivered(
        self, name: str, position: Position, payload: bytes, remaining: int | None, count: int
    ) -> None:
        """:raises Violation: it must not come now, or not like this"""
        stored = self.topic.entries.get(position)
        if stored is None:
            raise Violation(f"{self.kind}: {position} was never stored")
        if payload != stored.payload:
            raise Violation(f"{self.kind}: {position} has other bytes")
        if position in self.acked or stored.time < self.begins:
            raise Violation(f"{self.kind}: {position} was acknowledged")
        self._check_parts(position, remaining)
        if self.shared and stored.due > self.topic.now():
            raise Violation(f"{self.kind}: {position} comes before its time")
        if self.shared:
            self._check_shared(name, position, count)
        elif count:
            raise Violation(f"{self.kind}: {position} has the redelivery count {count}")
        else:
            if position <= self.last.get(name, (-1, -1)):
                raise Violation(f"{self.kind}: {position} comes after {self.last[name]}")
            self.last[name] = position
        self.holders[position] = name
        self.deliveries += 1

    def _check_parts(self, position: Position, remaining: int | None) -> None:
        given = self.full(position) if remaining is None else remaining
        wanted = self.parts[position][0] if position in self.parts else self.full(position)
        if position in self.doubtful:
            if given & wanted != wanted and position in self.parts:
                raise Violation(f"{self.kind}: {position} lacks messages: {given:b} of {wanted:b}")
            self.doubtful.discard(position)
            self.parts[position] = (given, 0.0)
        elif given != wanted:
            raise Violation(f"{self.kind}: {position} brings {given:b} in place of {wanted:b}")

    def _check_shared(self, name: str, position: Position, count: int) -> None:
        holder = self.holders.get(position)
        if holder is not None:
            raise Violation(f"{self.kind}: {position} goes to {name}, and {holder} holds it")
        wanted = self.counts.get(position, 0)
        if count != wanted:
            raise Violation(f"{self.kind}: {position} comes with count {count} in place of {wanted}")
        if self.kind != "Key_Shared":
            return
        entries = self.topic.entries
        key = entries[position].key
        for other in self.owed():
            if entries[other].due:
                # What waited for its time comes behind what did not.
                continue
            if other < position and entries[other].key == key and self.holders.get(other) != name:
                holder = self.holders.get(other)
                raise Violation(f"{position} of key {key} goes to {name} before {other}, held by {holder}")

    # What consumers do

    def acknowledge(self, position: Position, now: float) -> None:
        self.acked[position] = now
        self.parts.pop(position, None)
        self.holders.pop(position, None)
        self.counts.pop(position, None)

    def acknowledge_up_to(self, position: Position, now: float) -> None:
        for each in [p for p in self.owed() | self.doubtful if p <= position]:
            self.doubtful.discard(each)
            self.acknowledge(each, now)

    def acknowledge_part(self, position: Position, remaining: int, now: float) -> None:
        """Of what is left of a batch ``remaining`` stays."""
        if position in self.acked:
            return
        before = self.parts[position][0] if position in self.parts else self.full(position)
        left = before & remaining
        if left:
            self.parts[position] = (left, now)
        else:
            self.acknowledge(position, now)

    def redelivered(self, name: str, positions: set[Position] | None) -> None:
        """A consumer asks for what it holds again: these, or (None) all."""
        if not self.shared:
            # From the mark-delete position on, to whoever is served.
            self.holders.clear()
            self.last.pop(name, None)
            return
        for position in [p for p, holder in self.holders.items() if holder == name]:
            if positions is None or position in positions:
                del self.holders[position]
                self.counts[position] = self.counts.get(position, 0) + 1

    def left(self, name: str, *, others: bool) -> None:
        """A consumer has gone; what it held goes to others, or waits for the next one."""
        self.last.clear()
        for position in [p for p, holder in self.holders.items() if holder == name]:
            del self.holders[position]
        if not others:
            self.holders.clear()
            self.counts.clear()

    def sought(self, time: int) -> None:
        """Everything that was published before ``time`` counts as consumed, everything else as not."""
        self.restarted()
        self.parts.clear()
        self.doubtful.clear()
        self.acked.clear()
        self.begins = time

    def restarted(self) -> None:
        """Nobody is connected any more."""
        self.holders.clear()
        self.counts.clear()
        self.last.clear()

    def killed(self, since: float) -> None:
        """What was acknowledged after ``since`` may be forgotten."""
        self.restarted()
        for position in [p for p, when in self.acked.items() if when > since]:
            del self.acked[position]
            self.doubtful.add(position)
        for position, (_bits, when) in list(self.parts.items()):
            if when > since:
                self.doubtful.add(position)
