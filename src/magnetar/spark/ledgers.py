"""The ledgers of a topic, as the admin interface reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from magnetar.admin_client import AdminClient
from magnetar.spark.errors import DataLoss
from magnetar.spark.positions import EARLIEST, LATEST, Place

__all__ = ["Layout", "Range", "entry_count", "layout_of", "ranges_between"]


@dataclass(frozen=True)
class Range:
    """A range of consecutive messages of one ledger."""

    ledger: int
    first: int
    """The id of the first entry."""
    first_index: int
    """Batch index of the first message in entry ``first``."""
    end: int
    """The exclusive end: the id after the last entry that the range includes as a whole."""
    end_index: int = 0
    """Number of messages of entry ``end`` that the range also includes."""

    @property
    def entries(self) -> int:
        """Number of entries, including entries of which the range contains only some messages."""
        return self.end - self.first + (1 if self.end_index else 0)

    def from_entry(self, entry: int) -> Range:
        """Returns the part of this range that begins at one of its entries."""
        return replace(self, first=entry, first_index=self.first_index if entry == self.first else 0)


@dataclass(frozen=True)
class Layout:
    """The ledgers of a topic at one time, in order."""

    ledgers: tuple[tuple[int, int], ...]
    """For each ledger, also empty ones: its id and its number of entries."""
    cursors: dict[str, str]
    """The mark-delete position of each subscription, as ``ledger:entry``."""

    @property
    def first(self) -> Place:
        """The position of the first existing message; if the topic is empty, of the next message."""
        for ledger, entries in self.ledgers:
            if entries:
                return Place(ledger, 0)
        return self.end

    @property
    def end(self) -> Place:
        """The position after the last message that consumers can see."""
        for ledger, entries in reversed(self.ledgers):
            if entries:
                return Place(ledger, entries)
        return Place(self.ledgers[-1][0], 0) if self.ledgers else Place(0, 0)

    def has(self, ledger: int) -> bool:
        return any(each == ledger for each, _ in self.ledgers)

    def resolved(self, place: Place) -> Place:
        """Returns ``place``; for :data:`EARLIEST` the first position, and for :data:`LATEST` the end."""
        if place == EARLIEST:
            return self.first
        return self.end if place == LATEST else place

    def entries_behind(self, place: Place) -> int:
        """Returns the number of entries from a position to the end of the topic."""
        return sum(
            max(0, count - (place.entry if ledger == place.ledger else 0))
            for ledger, count in self.ledgers
            if ledger >= place.ledger
        )


def layout_of(admin: AdminClient, topic: str) -> Layout:
    """Asks the broker for the ledgers of a topic; entries from the first open transaction on are left out.

    :raises NotFound: the topic does not exist
    """
    stats = admin.topic_internal_stats(topic)
    last_ledger, last_entry = _visible_end(admin, topic, stats)
    ledgers = []
    for each in stats["ledgers"]:
        ledger, entries = int(each["ledgerId"]), int(each["entries"])
        if ledger == last_ledger:
            entries = last_entry + 1
        elif ledger > last_ledger:
            entries = 0
        ledgers.append((ledger, entries))
    cursors = {name: str(each["markDeletePosition"]) for name, each in stats["cursors"].items()}
    return Layout(tuple(sorted(ledgers)), cursors)


def _visible_end(admin: AdminClient, topic: str, stats: Mapping[str, object]) -> tuple[int, int]:
    hidden_from = stats.get("maxReadPosition")
    if hidden_from is not None:
        return parsed_position(hidden_from)
    last = parsed_position(stats["lastConfirmedEntry"])
    # Apache Pulsar's brokers report this elsewhere, and a moment later than the statistics.
    return min(last, admin.visible_end(topic) or last)


def parsed_position(text: object) -> tuple[int, int]:
    """Parses a position as statistics show it, such as ``3:7``; returns (ledger id, entry id)."""
    ledger, _, entry = str(text).partition(":")
    return int(ledger), int(entry)


def ranges_between(layout: Layout, start: Place, end: Place) -> list[Range]:
    """Returns the messages in [start, end) as one range for each ledger.

    :raises DataLoss: the ledger of ``start`` no longer exists
    """
    if start >= end:
        return []
    if layout.ledgers and not layout.has(start.ledger):
        raise DataLoss(
            f"the messages from {start} on have been deleted; the first available one is {layout.first}"
        )
    found = []
    for ledger, entries in layout.ledgers:
        if ledger < start.ledger or ledger > end.ledger:
            continue
        first, index = (start.entry, start.batch_index) if ledger == start.ledger else (0, 0)
        last, last_index = (end.entry, end.batch_index) if ledger == end.ledger else (entries, 0)
        if (first, index) < (last, last_index):
            found.append(Range(ledger, first, index, last, last_index))
    return found


def entry_count(ranges: list[Range]) -> int:
    return sum(each.entries for each in ranges)
