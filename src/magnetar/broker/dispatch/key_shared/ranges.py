"""Division of the slots of a Key_Shared subscription among its consumers.

A slot is the hash of a key (Pulsar's *sticky key hash*), 1 to 65535. Each division yields *segments*
in ascending order, each given by its last slot and the holder of its slots. Consumers may be objects of any
class; they are compared by identity.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Protocol

from magnetar.broker.dispatch.key_shared import KeyedMember, KeySharedMode, Range
from magnetar.errors import ConsumerAssignFailure
from magnetar.naming.hashes import murmur3_positive
from magnetar.protocol.hot_codec import slot_of
from magnetar.protocol.hot_keys import RANGE_SLOTS, RING_SLOTS

LAST_SLOT = 65535
_END = 65536
"""The end of the last segment, one above the last slot."""

Segments = list[tuple[int, KeyedMember | None]]
"""The last slot of each segment (of the last segment: :data:`_END`) and its holder, ascending; None: no
holder."""


class KeyRanges(Protocol):
    """A rule by which slots are divided."""

    modulo: int
    """The number of slots to which hashes are reduced (``magnetar.protocol.hot_keys``)."""

    def add(self, member: KeyedMember) -> None:
        """Adds a consumer, and assigns it slots.

        :raises ConsumerAssignFailure: no slots are left, or the requested ranges belong to another consumer
        """
        ...

    def remove(self, member: KeyedMember) -> None: ...
    def segments(self) -> Segments: ...


def key_ranges(mode: KeySharedMode, points: int) -> KeyRanges:
    """Returns a new division of the slots.

    :param points: the number of points of each consumer on the ring; 0: no ring, ranges are halved
    """
    if mode is KeySharedMode.STICKY:
        return StickyRanges()
    return HashRing(points) if points else HalvedRanges()


class HashRing:
    """Consistent hashing. A point is derived from the consumer's name, a number that distinguishes consumers
    of the same name, and the point's index, so that a consumer that reconnects gets the same slots."""

    modulo = RING_SLOTS

    def __init__(self, points: int) -> None:
        self._points = points
        self._ring: dict[int, list[KeyedMember]] = {}
        self._numbers: dict[KeyedMember, int] = {}

    def _slots(self, member: KeyedMember) -> list[int]:
        prefix = f"{member.name}\0{self._numbers[member]}\0"
        return [
            slot_of(murmur3_positive(f"{prefix}{point}".encode()), self.modulo)
            for point in range(self._points)
        ]

    def add(self, member: KeyedMember) -> None:
        taken = {number for other, number in self._numbers.items() if other.name == member.name}
        self._numbers[member] = next(n for n in range(len(taken) + 1) if n not in taken)
        for slot in self._slots(member):
            self._ring.setdefault(slot, []).append(member)

    def remove(self, member: KeyedMember) -> None:
        for slot in self._slots(member):
            there = self._ring[slot]
            there.remove(member)
            if not there:
                del self._ring[slot]
        del self._numbers[member]

    def segments(self) -> Segments:
        """Returns the segments. If several consumers share a point, the consumer that joined first has it."""
        found: Segments = [(slot, self._ring[slot][0]) for slot in sorted(self._ring)]
        if found:
            found.append((_END, found[0][1]))
        return found or [(_END, None)]


class HalvedRanges:
    """Each new consumer gets half of the largest range; a consumer that leaves passes its range to a
    neighbour."""

    modulo = RANGE_SLOTS

    def __init__(self) -> None:
        self._ends: dict[int, KeyedMember] = {}

    def add(self, member: KeyedMember) -> None:
        if not self._ends:
            self._ends[_END] = member
            return
        low, end = max(pairwise([0, *sorted(self._ends)]), key=lambda pair: (pair[1] - pair[0], -pair[1]))
        if end - low < 2:
            raise ConsumerAssignFailure(
                f"No hash range is left for another consumer: {len(self._ends)} consumers have all slots"
            )
        self._ends[end - ((end - low) >> 1)] = member

    def remove(self, member: KeyedMember) -> None:
        end = next(end for end, holder in self._ends.items() if holder is member)
        del self._ends[end]
        if end == _END and self._ends:
            self._ends[_END] = self._ends.pop(max(self._ends))

    def segments(self) -> Segments:
        return [*sorted(self._ends.items(), key=lambda item: item[0])] or [(_END, None)]


class StickyRanges:
    """Each consumer has the ranges that it requested; as in Pulsar, they may contain 0, which no key has."""

    modulo = RANGE_SLOTS

    def __init__(self) -> None:
        self._held: dict[KeyedMember, list[Range]] = {}

    def add(self, member: KeyedMember) -> None:
        ranges = sorted(member.policy.ranges)
        if not ranges:
            raise ConsumerAssignFailure("Ranges for KeyShared policy must not be empty.")
        for first, last in ranges:
            if first < 0 or last > LAST_SLOT:
                raise ConsumerAssignFailure(f"Fixed hash range [{first},{last}] is outside [0,{LAST_SLOT}]")
            if first > last:
                raise ConsumerAssignFailure(f"Fixed hash range start > end for range: [{first},{last}]")
        for before, after in pairwise(ranges):
            if after[0] <= before[1]:
                raise ConsumerAssignFailure(
                    f"Consumer's own ranges conflict: [{before[0]},{before[1]}] overlaps with "
                    f"[{after[0]},{after[1]}]"
                )
        for other, held in self._held.items():
            for first, last in ranges:
                if any(first <= taken[1] and taken[0] <= last for taken in held):
                    raise ConsumerAssignFailure(f"Range conflict with consumer {other.name}")
        self._held[member] = ranges

    def remove(self, member: KeyedMember) -> None:
        del self._held[member]

    def segments(self) -> Segments:
        found: Segments = []
        position = 0
        all_ranges = [(first, last, member) for member, held in self._held.items() for first, last in held]
        for first, last, member in sorted(all_ranges, key=lambda each: each[0]):
            if first > position:
                found.append((first - 1, None))
            found.append((last, member))
            position = last + 1
        found.append((_END, None))
        return found


def ranges_of(member: KeyedMember, segments: Segments, first: int = 0) -> list[Range]:
    """Returns the slots of a consumer as ranges, for statistics.

    :param first: the lowest slot
    """
    found: list[Range] = []
    for last, holder in segments:
        end = min(last, LAST_SLOT)
        if holder is member and end >= first:
            if found and found[-1][1] == first - 1:
                found[-1] = (found[-1][0], end)
            else:
                found.append((first, end))
        first = last + 1
    return found
