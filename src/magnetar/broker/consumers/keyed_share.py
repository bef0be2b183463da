"""The entries of one run that go to one consumer of a Key_Shared subscription."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from magnetar.managed_ledger.position import Position
from magnetar.protocol.hot_codec import KeyRouting

SLOT_SHIFT = 32
"""In the combined number the slot is above this many bits, which hold the number of messages."""


class KeyedShare:
    """Parallel arrays: indexes in the run, entry ids, messages, and ``slot << 32 | messages``."""

    __slots__ = ("chosen", "ids", "packed", "sizes")

    def __init__(self, chosen: array[int], ids: array[int], sizes: array[int], packed: array[int]) -> None:
        self.chosen = chosen
        self.ids = ids
        self.sizes = sizes
        self.packed = packed

    @classmethod
    def of_group(cls, routing: KeyRouting, start: int, stop: int) -> KeyedShare:
        """Returns the places [start, stop) of the grouped entries."""
        return cls(
            routing.order[start:stop],
            routing.entry_ids[start:stop],
            routing.sorted_sizes[start:stop],
            routing.packed[start:stop],
        )

    @classmethod
    def of_positions(
        cls, taken: Sequence[tuple[Position, int]], first_entry_id: int, sizes_of_run: array[int]
    ) -> KeyedShare:
        """Returns positions with their slots, in a run that begins with ``first_entry_id``."""
        ids = array("q", [position[1] for position, _slot in taken])
        chosen = array("q", [entry_id - first_entry_id for entry_id in ids])
        sizes = array("i", [sizes_of_run[index] for index in chosen])
        packed = [slot << SLOT_SHIFT | size for (_p, slot), size in zip(taken, sizes, strict=True)]
        return cls(chosen, ids, sizes, array("q", packed))

    def __len__(self) -> int:
        return len(self.chosen)

    def slot(self, place: int) -> int:
        return self.packed[place] >> SLOT_SHIFT

    def only(self, places: Sequence[int]) -> KeyedShare:
        """Returns the entries at these places."""
        return KeyedShare(
            array("q", [self.chosen[place] for place in places]),
            array("q", [self.ids[place] for place in places]),
            array("i", [self.sizes[place] for place in places]),
            array("q", [self.packed[place] for place in places]),
        )
