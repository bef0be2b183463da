"""The mapping file: which ledger became which; and places in topics that are translated by it."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from magnetar.exporting.topic_export import MappedLedger
from magnetar.lazy_dataclass import dataclass

HEADER = "#magnetar-export-mapping-1"
"""The first line of such a file."""


class NotTranslated(Exception):
    """A file is no mapping, or a place is not in it; the text says which."""


class Translated(NamedTuple):
    """The next message: ledger, entry, index in its batch."""

    ledger: int
    entry: int
    batch_index: int


def line_of(mapped: MappedLedger) -> str:
    """Topic, old and new ledger, entries; with tabs between.

    A name that would break the line is a text of JSON: no name begins with a quotation mark.
    """
    topic = mapped.topic if mapped.topic.isprintable() else json.dumps(mapped.topic)
    return "\t".join(str(field) for field in (topic, *mapped[1:])) + "\n"


@dataclass
class Mapping:
    """Of all topics that one file tells of."""

    topics: dict[str, list[MappedLedger]] = field(default_factory=dict)
    """By full name, of partitions where there are such; in the order of the ledgers."""

    @staticmethod
    def parse(lines: Iterable[str]) -> Mapping:
        """The last line that tells of a ledger counts.

        :raises NotTranslated: it is no mapping
        """
        known: dict[tuple[str, int], MappedLedger] = {}
        for number, line in enumerate(lines, 1):
            text = line.rstrip("\n")
            if number == 1:
                if text != HEADER:
                    raise NotTranslated(f"line 1 must be {HEADER}")
                continue
            fields = text.split("\t")
            try:
                topic, old, new, entries = fields
                if topic.startswith('"'):
                    topic = json.loads(topic)
                found = MappedLedger(topic, int(old), int(new), int(entries))
            except ValueError as error:
                raise NotTranslated(
                    f"line {number} must have the topic, old ledger, new ledger and number of entries"
                ) from error
            known[topic, found.old] = found
        mapping = Mapping()
        for (topic, _old), found in sorted(known.items()):
            mapping.topics.setdefault(topic, []).append(found)
        return mapping

    def message(self, topic: str, ledger_id: int, entry_id: int) -> tuple[int, int]:
        """Where a message is that had this id.

        :raises NotTranslated: there was none
        """
        for each in self._of(topic):
            if each.old == ledger_id and (each.entries < 0 or -1 <= entry_id < each.entries):
                return each.new, entry_id
        raise NotTranslated(f"{topic} had no message {ledger_id}:{entry_id} when it was exported")

    def place(self, topic: str, ledger_id: int, entry_id: int, index: int) -> Translated:
        """The place of the next message to be read, which need not be there yet.

        :raises NotTranslated: what comes next is not in the topic any more
        """
        ledgers = self._of(topic)
        at = bisect_left(ledgers, ledger_id, key=lambda each: each.old)
        if at < len(ledgers) and ledgers[at].old == ledger_id:
            return Translated(ledgers[at].new, entry_id, index)
        if at == 0:
            raise NotTranslated(
                f"{topic}: the messages from {ledger_id}:{entry_id} on had been deleted when it was exported"
            )
        # A ledger that never had an entry was not carried over.
        if at < len(ledgers):
            return Translated(ledgers[at].new, 0, 0)
        last = ledgers[-1]
        return Translated(last.new, max(0, last.entries), 0)

    def _of(self, topic: str) -> Sequence[MappedLedger]:
        found = self.topics.get(topic)
        if found is None:
            raise NotTranslated(f"the mapping has no topic {topic}")
        return found
