"""The quarantine table of a topic, for messages that its main table cannot store.

A batch consists of two commits: first to the quarantine table, then to the main table. The marker of the
first commit contains the plan of the batch: positions and schema. A driver that finds the quarantine table
one batch ahead carries out the same plan, so each message is in exactly one of the two tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from magnetar.spark.codec.rows import Malformed
from magnetar.spark.codec.schemas import Definition
from magnetar.spark.pipelines.table_commits import (
    OpenTable,
    TableError,
    TableIdentity,
    TableMarker,
    commit_once,
)
from magnetar.spark.pipelines.table_files import TableFileWriter, TableFolder, WrittenFile, prefix_of
from magnetar.spark.positions import Offset

__all__ = ["QUARANTINE", "PlannedBatch", "QuarantineFile", "QuarantineTable", "QuarantineTarget"]

QUARANTINE = "quarantine"
"""The ``mode`` in the identity of a quarantine table."""
_COLUMNS = pa.schema(
    [
        ("reason", pa.string()),
        ("payload", pa.binary()),
        ("position", pa.string()),
        ("schemaVersion", pa.int64()),
        ("__key", pa.binary()),
        ("__topic", pa.string()),
        ("__messageId", pa.binary()),
        ("__publishTime", pa.timestamp("us", "UTC")),
        ("__messageProperties", pa.map_(pa.string(), pa.string())),
    ]
)
_HELD_BYTES = 4 << 20
"""Maximum size of payloads that a task collects before it converts them, in bytes."""


@dataclass(frozen=True)
class QuarantineTarget:
    """The description of a quarantine table that tasks need to write files for the table."""

    folder: TableFolder
    query: str
    schema: pa.Schema


class QuarantineFile:
    """Writes the malformed messages of a task to a file of the quarantine table."""

    def __init__(self, target: QuarantineTarget) -> None:
        self._writer = TableFileWriter(target.folder, target.schema, target.query)
        self._held: list[Malformed] = []
        self._bytes = 0

    def add(self, found: Malformed) -> None:
        self._held.append(found)
        self._bytes += len(found.data)
        if self._bytes >= _HELD_BYTES:
            self._convert()

    def finish(self) -> list[WrittenFile]:
        """Returns the complete file; an empty list if there are no messages."""
        self._convert()
        file = self._writer.finish()
        return [] if file is None else [file]

    def _convert(self) -> None:
        if not self._held:
            return
        rows = [
            {
                "reason": each.reason,
                "payload": each.data,
                "position": each.position,
                "schemaVersion": each.schema_version,
                "__key": each.key,
                "__topic": each.topic,
                "__messageId": each.message_id,
                "__publishTime": None if each.publish_time is None else each.publish_time * 1000,
                "__messageProperties": list(each.properties),
            }
            for each in self._held
        ]
        self._held, self._bytes = [], 0
        self._writer.add(pa.RecordBatch.from_pylist(rows, schema=_COLUMNS))
        self._writer.write_full_group()


@dataclass(frozen=True)
class PlannedBatch:
    """The plan of a batch, which determines its malformed messages."""

    after: str
    """The commit id in the main table's marker before the batch; empty: it is the first batch."""
    end: Mapping[str, object]
    """The JSON of the :class:`magnetar.spark.positions.Offset` after the batch, with all data of the plan."""
    definition: Definition

    def to_json(self) -> str:
        found = {"after": self.after, "end": self.end, "definition": asdict(self.definition)}
        return json.dumps(found, separators=(",", ":"), sort_keys=True)

    @staticmethod
    def from_json(text: str, where: str) -> PlannedBatch:
        """Returns the plan from the JSON that :meth:`to_json` returned.

        :param where: the table, for the text of an error
        :raises TableError: the text is not a plan
        """
        try:
            found = json.loads(text)
            return PlannedBatch(found["after"], found["end"], _definition(json.dumps(found["definition"])))
        except (KeyError, TypeError, ValueError) as error:
            raise TableError(f"{where} has a damaged plan in its marker {text[:200]!r}: {error}") from error


def _definition(text: str) -> Definition:
    found = json.loads(text)
    for side in ("key", "value"):
        found[side] = None if found[side] is None else _definition(json.dumps(found[side]))
    found["refused"] = tuple((int(version), str(reason)) for version, reason in found["refused"])
    return Definition(**found)


class QuarantineTable:
    """The quarantine table of a topic."""

    def __init__(self, table: OpenTable) -> None:
        self.table = table
        self.rows = 0
        """Number of messages that this run has added to the quarantine table."""
        self._before = TableMarker("", 0, "", "")

    def prepare(self, main: TableIdentity) -> None:
        """Creates the table if it does not exist.

        :param main: the identity of the topic's table
        :raises TableError: the existing quarantine table belongs to another topic's table
        """
        state = self.table.find()
        if state is None:
            # One query has one name, so that two drivers create the same table.
            identity = TableIdentity(f"{main.query}q", main.topic, main.subscription, QUARANTINE)
            self.table.create(identity, _COLUMNS)
            state = self.table.load()
        found = state.identity
        if (found.topic, found.subscription, found.mode) != (main.topic, main.subscription, QUARANTINE):
            raise TableError(
                f"{self.table} exists, but is not the quarantine table of {main.topic} with the subscription "
                f"{main.subscription}: it was created for {found.topic}, {found.subscription}, with the mode "
                f"{found.mode}; move it away, or choose another quarantine_name"
            )

    def planned(self, marker: TableMarker) -> PlannedBatch | None:
        """Returns the batch that is committed in this table but not in the topic's table; None: no such
        batch.

        :param marker: the marker of the topic's table
        :raises TableError: at ``marker``, the topic's table lacks batches of this table, because the topic's
            table was restored, or another driver has committed a batch meanwhile
        """
        self._before = found = self.table.load().marker
        if not found.batch:
            return None
        planned = PlannedBatch.from_json(found.positions, str(self.table))
        if planned.after == marker.commit:
            return planned
        if not _is_behind(Offset.from_json(planned.end), marker):
            raise TableError(
                f"{self.table} has batch {found.batch}, which the table of the topic, at {marker}, does not "
                "have; restore the later state of that table, or choose another quarantine_name"
            )
        return None

    @property
    def target(self) -> QuarantineTarget:
        state = self.table.load()
        return QuarantineTarget(self.table.folder, state.identity.query, state.schema)

    def add(self, planned: PlannedBatch, marker: TableMarker, files: Sequence[WrittenFile]) -> None:
        """Commits the malformed messages of a planned batch to the quarantine table; :meth:`planned` must
        have been called before.

        :param marker: the marker of the topic's table before the batch
        :raises BatchTaken: another driver has committed a batch; read the markers again
        :raises TableError: see :func:`magnetar.spark.pipelines.table_commits.commit_once`
        """
        commit_once(self.table, self._before, planned.to_json(), files, batch=marker.batch + 1)
        self.rows += sum(each.rows for each in files)

    @staticmethod
    def split(
        files: Sequence[WrittenFile], target: QuarantineTarget
    ) -> tuple[list[WrittenFile], list[WrittenFile]]:
        """Splits files into the files of the topic's table and the files of the quarantine table."""
        prefix = prefix_of(target.query)
        aside = [each for each in files if each.path.startswith(prefix)]
        return [each for each in files if not each.path.startswith(prefix)], aside


def _is_behind(end: Offset, marker: TableMarker) -> bool:
    """Whether a table with this marker contains all messages before ``end``."""
    if not marker.positions:
        return False
    has = Offset.from_json(marker.positions).topics
    return all(name in has and each.next <= has[name].next for name, each in end.topics.items())
