"""The mapping file with old and new ledger ids, and the translation of positions."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import NamedTuple

from magnetar.exporting.topic_export import MappedLedger
from magnetar.lazy_dataclass import dataclass

HEADER = "#magnetar-export-mapping-1"
"""The first line of a mapping file."""


class NotTranslated(Exception):
    """A file is not a mapping file, or a position cannot be translated; the message gives the reason."""


class Translated(NamedTuple):
    """A reader's position in an exported topic: ledger, entry and batch index of the next message to read."""

    ledger: int
    entry: int
    batch_index: int


def line_of(mapped: MappedLedger) -> str:
    """Returns a line: topic, old ledger, new ledger and number of entries, separated by tabs.

    A name with a tab or a line break is written as a JSON string, because no name begins with a quotation
    mark.
    """
    topic = mapped.topic if mapped.topic.isprintable() else json.dumps(mapped.topic)
    return "\t".join(str(field) for field in (topic, *mapped[1:])) + "\n"


@dataclass
class Mapping:
    """The mapping of all topics of a file."""

    topics: dict[str, list[MappedLedger]] = field(default_factory=dict)
    """The ledgers in order, by full name of the topic or partition."""

    @staticmethod
    def parse(lines: Iterable[str]) -> Mapping:
        """Parses a file. If a ledger has several lines, the last one is used.

        :raises NotTranslated: the file is not a mapping
        """
        known: dict[tuple[str, int], MappedLedger] = {}
        for number, line in enumerate(lines, 1):
            text = line.rstrip("\n")
            if number == 1:
                if text != HEADER:
                    raise NotTranslated(
                        f"line 1 must be {HEADER}: give a mapping file of magnetar export-ledgers"
                    )
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
        """Returns the position of a message after the export. The arguments are the message's position before
        the export.

        :raises NotTranslated: no message had this id
        """
        for each in self._of(topic):
            if each.old == ledger_id and (each.entries < 0 or -1 <= entry_id < each.entries):
                return each.new, entry_id
        raise NotTranslated(f"{topic} had no message {ledger_id}:{entry_id} when it was exported")

    def place(self, topic: str, ledger_id: int, entry_id: int, index: int) -> Translated:
        """Returns a reader's position after the export.

        The arguments are the reader's position before the export, which is the position of the next message
        to read; this message need not exist yet.

        :raises NotTranslated: the message at the given position had been deleted before the export
        """
        ledgers = self._of(topic)
        at = bisect_left(ledgers, ledger_id, key=lambda each: each.old)
        if at < len(ledgers) and ledgers[at].old == ledger_id:
            return Translated(ledgers[at].new, entry_id, index)
        if at == 0:
            raise NotTranslated(
                f"{topic}: the messages from {ledger_id}:{entry_id} on had been deleted "
                f"when the topic was exported"
            )
        # A ledger without entries was not exported.
        if at < len(ledgers):
            return Translated(ledgers[at].new, 0, 0)
        last = ledgers[-1]
        return Translated(last.new, max(0, last.entries), 0)

    def _of(self, topic: str) -> Sequence[MappedLedger]:
        found = self.topics.get(topic)
        if found is None:
            raise NotTranslated(f"the mapping has no topic {topic}")
        return found
