"""Which messages of other clusters a topic has already: the highest source position of each replicator.

A replicated message carries its position in the source topic as a property. Sequence ids do not help here: a
replicator mixes those of all producers of the source.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping

from magnetar.managed_ledger.position import Position
from magnetar.naming.replicators import ENTRY_MARK, LEDGER_MARK, cluster_of_cursor, producer_name

FRESH, DUPLICATE, UNDECIDED = range(3)

_NOTHING: Position = (-1, -1)
_MISSING_KEPT = 10_000
"""Refused positions of one replicator that may come again; far more than it has in flight."""


class SourcePositions:
    """Pending and durable source positions, by names of replicators' producers.

    A message whose write failed, or that was refused, may come again after later ones were stored. Its
    position is remembered as missing, so that it is no duplicate then. The memory lasts until the topic is
    unloaded.
    """

    def __init__(self, prefix: str, cluster: str) -> None:
        """:param prefix: the setting ``replicatorPrefix``

        :param cluster: the name of this cluster
        """
        self._prefix = prefix
        self._cluster = cluster
        self._stored: dict[str, Position] = {}
        self._pushed: dict[str, Position] = {}
        self._missing: dict[str, dict[Position, None]] = {}
        self._returning: dict[str, set[Position]] = {}
        """Missing positions that are pending again."""
        self.dropped: dict[str, int] = {}
        """By names of replicators: the duplicates dropped since a message was last stored."""

    # Snapshots

    def load(self, properties: Mapping[str, int]) -> dict[str, int]:
        """Takes the positions of replicators from a snapshot, and returns the other properties.

        A ledger id alone stands for the position before its first entry: Apache Pulsar may have written
        ledger id and entry id separately.
        """
        rest = {}
        for key, value in properties.items():
            name, mark = key[: -len(LEDGER_MARK)], key[-len(LEDGER_MARK) :]
            if mark not in (LEDGER_MARK, ENTRY_MARK) or cluster_of_cursor(self._prefix, name) is None:
                rest[key] = value
            elif mark == LEDGER_MARK:
                self._stored[name] = (value, properties.get(name + ENTRY_MARK, -1))
        self._pushed = dict(self._stored)
        return rest

    def properties(self) -> dict[str, int]:
        """The properties for a snapshot, as Apache Pulsar 4.0 writes them."""
        found = {}
        for name, (ledger_id, entry_id) in self._stored.items():
            found[name + LEDGER_MARK] = ledger_id
            found[name + ENTRY_MARK] = entry_id
        return found

    def learn(self, cluster: str, position: Position) -> None:
        """Records that a stored entry came from that position."""
        name = producer_name(self._prefix, cluster, self._cluster)
        if position > self._stored.get(name, _NOTHING):
            self._stored[name] = self._pushed[name] = position

    def last(self, name: str) -> Position | None:
        """Returns the highest durable position, or None."""
        return self._stored.get(name)

    # Publishing

    def admit_all(self, name: str, ledger_ids: array[int], entry_ids: array[int], count: int) -> bool:
        """Makes slots [0, count) pending if all of them are new and in order; otherwise changes nothing."""
        if name in self._missing:
            return False
        mark = self._pushed.get(name, _NOTHING)
        for index in range(count):
            position = ledger_ids[index], entry_ids[index]
            if position <= mark:
                return False
            mark = position
        self._pushed[name] = mark
        return True

    def admit(self, name: str, position: Position) -> int:
        """Makes one message pending if it is FRESH.

        DUPLICATE: it is durable already; UNDECIDED: it is pending already.
        """
        missing = self._missing.get(name)
        if missing is not None and position in missing:
            del missing[position]
            if not missing:
                del self._missing[name]
            self._returning.setdefault(name, set()).add(position)
            if position > self._pushed.get(name, _NOTHING):
                self._pushed[name] = position
            return FRESH
        if position > self._pushed.get(name, _NOTHING):
            self._pushed[name] = position
            return FRESH
        if position > self._stored.get(name, _NOTHING) or position in self._returning.get(name, ()):
            return UNDECIDED
        self.dropped[name] = self.dropped.get(name, 0) + 1
        return DUPLICATE

    def stored(self, name: str, ledger_ids: Iterable[int], entry_ids: Iterable[int]) -> None:
        """Messages at these positions are durable."""
        if self.dropped:
            self.dropped.pop(name, None)
        returning = self._returning.get(name)
        highest = self._stored.get(name, _NOTHING)
        for position in zip(ledger_ids, entry_ids, strict=True):
            highest = max(highest, position)
            if returning:
                returning.discard(position)
        if returning is not None and not returning:
            del self._returning[name]
        self._stored[name] = highest
        if highest > self._pushed.get(name, _NOTHING):
            # The message was pending before deduplication was switched on.
            self._pushed[name] = highest

    def refused(self, name: str, positions: Iterable[Position]) -> None:
        """Messages at these positions will not become durable, and may come again."""
        missing = self._missing.setdefault(name, {})
        returning = self._returning.get(name, set())
        for position in positions:
            returning.discard(position)
            missing[position] = None
        while len(missing) > _MISSING_KEPT:
            del missing[next(iter(missing))]
        if not missing:
            del self._missing[name]

    def failed(self, on_their_way: Iterable[tuple[str, Position]]) -> None:
        """Takes back positions whose write has failed; :meth:`refused` is called for them as well.

        :param on_their_way: names and positions that are still pending, in publish order
        """
        self._pushed = dict(self._stored)
        for name, position in on_their_way:
            if position > self._pushed.get(name, _NOTHING):
                self._pushed[name] = position
