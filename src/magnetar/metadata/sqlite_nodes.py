"""The tree of nodes in SQLite: the operations inside a transaction. Used by a single worker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from magnetar.io.interfaces import SqlConnection
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    ChangeKind,
    Delete,
    MetadataError,
    Node,
    NodeDamaged,
    NodeMissing,
    NodeNotEmpty,
    Put,
    Step,
)
from magnetar.metadata.progress import IDENTITY_BYTES, Edit, NodeRange, Numbered, Progress, Tally

FORMAT_VERSION = 2
"""The format of new databases; format 1 lacks the table ``progress``."""
OFFLOADING_FORMAT = 3
"""Format 2, except that records of managed ledgers may name ledgers in tiered storage. The first such record
sets this format, so that releases that cannot read the record refuse the database."""

_TABLES = (
    """CREATE TABLE nodes (
        path TEXT PRIMARY KEY,
        parent TEXT NOT NULL,
        value BLOB NOT NULL,
        version INTEGER NOT NULL,
        created_ms INTEGER NOT NULL,
        modified_ms INTEGER NOT NULL,
        ephemeral INTEGER NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX nodes_by_parent ON nodes (parent, path)",
    "CREATE INDEX ephemeral_nodes ON nodes (path) WHERE ephemeral",
    # Separate from the nodes: a parent that is deleted and created again continues its numbers.
    "CREATE TABLE sequences (parent TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID",
)
_PROGRESS_TABLE = """CREATE TABLE progress (
        only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
        metadata_id BLOB NOT NULL,
        generation INTEGER NOT NULL,
        nodes INTEGER NOT NULL,
        checksum INTEGER NOT NULL,
        ledger_store BLOB NOT NULL,
        next_ledger_id INTEGER NOT NULL
    )"""
_SELECT_BEHIND = (
    "SELECT path, parent, value, version, created_ms, modified_ms FROM nodes "
    "WHERE NOT ephemeral AND path > ? ORDER BY path LIMIT ?"
)
_STORE = (
    "INSERT OR REPLACE INTO nodes (path, parent, value, version, created_ms, modified_ms, ephemeral) "
    "VALUES (?, ?, ?, ?, ?, ?, ?)"
)

_SEQUENCE_DIGITS = 10
_SIGN = 1 << 63
_WORD = 1 << 64
_PART_BYTES = 128 << 10
"""The approximate size in bytes of a part of the nodes that :meth:`SqliteNodes.part` returns."""
_SCAN_ROWS = 200
"""The number of rows per read when all nodes are read."""


def parent_of(path: str) -> str:
    """Returns the path above ``path``; ``/`` for top-level nodes, an empty string for ``/`` itself."""
    if path == "/":
        return ""
    return path[: path.rindex("/")] or "/"


class SqliteNodes:
    """Reads and changes nodes. Changes are collected in :attr:`changes` until the caller takes them."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self.changes: list[Change] = []
        self.edits: list[Edit] = []
        """Changes of persistent nodes, until the caller takes them."""
        self.tally = Tally()
        """The tally of all persistent nodes."""

    def format(self) -> int:
        """Returns the format of the database; 0 if it is new."""
        return int(self._connection.execute("PRAGMA user_version")[0][0])

    def create(self) -> None:
        """Creates the tables of format 1."""
        for statement in _TABLES:
            self._connection.execute(statement)

    def add_progress(self, progress: Progress) -> None:
        """Adds the table of format 2 to the tables of format 1."""
        self._connection.execute(_PROGRESS_TABLE)
        self._connection.execute("INSERT INTO progress VALUES (1, x'', 0, 0, 0, x'', 1)")
        self.write_progress(progress)
        self._connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def note_offloading(self) -> None:
        """Sets the format of the database to :data:`OFFLOADING_FORMAT`."""
        if self.format() < OFFLOADING_FORMAT:
            self._connection.execute(f"PRAGMA user_version = {OFFLOADING_FORMAT}")

    def write_progress(self, progress: Progress) -> None:
        tally = progress.tally
        signed = tally.checksum - _WORD if tally.checksum & _SIGN else tally.checksum
        self._connection.execute(
            "UPDATE progress SET metadata_id = ?, generation = ?, nodes = ?, checksum = ?, ledger_store = ?, "
            "next_ledger_id = ?",
            (
                progress.metadata_id,
                progress.generation,
                tally.nodes,
                signed,
                progress.ledger_store,
                progress.next_ledger_id,
            ),
        )

    def read_progress(self) -> Progress:
        """Returns the recorded progress: the newest generation and the tally of the nodes.

        :raises NodeDamaged: the record is not in the form that this program writes
        """
        rows = self._connection.execute(
            "SELECT metadata_id, generation, nodes, checksum, ledger_store, next_ledger_id FROM progress"
        )
        if len(rows) != 1:
            raise NodeDamaged(f"the table 'progress' has {len(rows)} rows instead of 1")
        metadata_id, generation, nodes, checksum, ledger_store, next_ledger_id = rows[0]
        numbers = (generation, nodes, checksum, next_ledger_id)
        whole = all(isinstance(number, int) for number in numbers) and isinstance(ledger_store, bytes)
        if not whole or not isinstance(metadata_id, bytes) or len(metadata_id) != IDENTITY_BYTES:
            raise NodeDamaged("a column of the table 'progress' has the wrong type")
        return Progress(metadata_id, generation, Tally(nodes, checksum % _WORD), ledger_store, next_ledger_id)

    def count_all(self) -> Tally:
        """Returns the tally of the existing rows, after comparing them with their indexes.

        :raises NodeDamaged: a row was not written by this program, or is missing from an index
        """
        tally, after = Tally(), ""
        while nodes := self._persistent_after(after):
            for node in nodes:
                tally = tally.plus(node)
            after = nodes[-1].path
        for problem, *_ in self._connection.execute("PRAGMA integrity_check(1)"):
            if problem != "ok":
                raise NodeDamaged(f"the database is damaged; SQLite reports: {problem}")
        return tally

    def part(self, after: str, progress: Progress) -> NodeRange:
        """Returns a part of the persistent nodes after a path. The last part has the sequential numbers, and
        no nodes."""
        nodes, size = [], 0
        for node in self._persistent_after(after):
            nodes.append(node)
            size += len(node.path) + len(node.value)
            if size > _PART_BYTES:
                break
        if nodes:
            return NodeRange(progress, after, nodes[-1].path, list(nodes))
        numbers = self._connection.execute("SELECT parent, next FROM sequences")
        return NodeRange(progress, after, "", [Numbered(parent, number) for parent, number in numbers])

    def _persistent_after(self, after: str) -> list[Node]:
        """Returns the persistent nodes after a path, at most :data:`_SCAN_ROWS`.

        :raises NodeDamaged: a row was not written by this program
        """
        rows = self._connection.execute(_SELECT_BEHIND, (after, _SCAN_ROWS))
        nodes = []
        for path, parent, value, version, created_ms, modified_ms in rows:
            numbers = (version, created_ms, modified_ms)
            texts = isinstance(path, str) and path.startswith("/") and parent == parent_of(path)
            if not texts or not isinstance(value, bytes) or not all(isinstance(n, int) for n in numbers):
                raise NodeDamaged(f"{path!r}: its row is damaged: a column has the wrong type or value")
            nodes.append(Node(path, value, version, created_ms, modified_ms, False))
        return nodes

    def restore(self, edit: Edit) -> None:
        """Applies one edit to a database that is being restored."""
        if isinstance(edit, Numbered):
            self._number(edit.parent, edit.following)
        elif isinstance(edit, str):
            self._connection.execute("DELETE FROM nodes WHERE path = ?", (edit,))
        else:
            self._store(edit)

    def database_bytes(self) -> int:
        """Returns the size of the database in bytes, without the write-ahead log."""
        pages, size = (self._connection.execute(f"PRAGMA page_{part}")[0][0] for part in ("count", "size"))
        return int(pages) * int(size)

    def get(self, path: str) -> Node | None:
        """Returns a node; None if it does not exist.

        :raises NodeDamaged: its row was not written by this program
        """
        rows = self._connection.execute(
            "SELECT value, version, created_ms, modified_ms, ephemeral FROM nodes WHERE path = ?", (path,)
        )
        if not rows:
            return None
        value, *numbers = rows[0]
        if not isinstance(value, bytes) or not all(isinstance(number, int) for number in numbers):
            raise NodeDamaged(f"{path}: a column of its row has the wrong type")
        version, created_ms, modified_ms, ephemeral = numbers
        # Nodes of earlier sessions were removed when the store was opened: what is left is this one's.
        return Node(path, value, version, created_ms, modified_ms, bool(ephemeral), bool(ephemeral))

    def exists(self, path: str) -> bool:
        return bool(self._connection.execute("SELECT 1 FROM nodes WHERE path = ?", (path,)))

    def children(self, path: str) -> Sequence[str]:
        prefix = len(path) + 1 if path != "/" else 1
        rows = self._connection.execute("SELECT path FROM nodes WHERE parent = ?", (path,))
        return sorted(row[0][prefix:] for row in rows)

    def put(
        self, path: str, value: bytes, expected: int | None, ephemeral: bool, sequential: bool, now_ms: int
    ) -> Node:
        """Creates or replaces a node.

        :raises BadVersion: the node does not have the version ``expected``, or exists although it must not
        """
        if sequential:
            path = self._numbered(path)
        old = self.get(path)
        if old is None:
            if expected is not None and expected != MUST_NOT_EXIST:
                raise BadVersion(f"{path}: expected version {expected}, but there is no such node")
            return self._insert(Node(path, value, 0, now_ms, now_ms, ephemeral, ephemeral))
        if expected is not None and expected != old.version:
            wanted = "no node" if expected == MUST_NOT_EXIST else f"version {expected}"
            raise BadVersion(f"{path}: expected version {wanted}, found version {old.version}")
        node = Node(path, value, old.version + 1, old.created_ms, now_ms, old.ephemeral, old.own)
        self._connection.execute(
            "UPDATE nodes SET value = ?, version = ?, modified_ms = ? WHERE path = ?",
            (value, node.version, now_ms, path),
        )
        if not node.ephemeral:
            self.tally = self.tally.minus(old).plus(node)
            self.edits.append(node)
        self.changes.append(Change(ChangeKind.CHANGED, path))
        return node

    def delete(self, path: str, expected: int | None) -> None:
        """Deletes a node.

        :raises NodeMissing: the node does not exist
        :raises BadVersion: the node has another version
        :raises NodeNotEmpty: the node has children
        """
        old = self.get(path)
        if old is None:
            raise NodeMissing(f"{path}: no such node")
        if expected is not None and expected != old.version:
            raise BadVersion(f"{path}: expected version {expected}, found version {old.version}")
        if self._connection.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)):
            raise NodeNotEmpty(f"{path}: the node has children; delete them first")
        self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
        if not old.ephemeral:
            self.tally = self.tally.minus(old)
            self.edits.append(path)
        self.changes.append(Change(ChangeKind.DELETED, path))
        self._note_children(path)

    def change_together(self, steps: Sequence[Step], now_ms: int) -> list[Node | None]:
        """Carries out all steps in their order; returns the new node for each put, and None for every other
        step.

        :raises MetadataError: a step failed; the caller must roll back the earlier steps
        """
        nodes = []
        for at, step in enumerate(steps):
            try:
                nodes.append(self._do(step, now_ms))
            except MetadataError as error:
                error.step = at
                raise
        return nodes

    def _do(self, step: Step, now_ms: int) -> Node | None:
        if isinstance(step, Put):
            return self.put(step.path, step.value, step.expected_version, step.ephemeral, False, now_ms)
        if isinstance(step, Delete):
            self.delete(step.path, step.expected_version)
            return None
        found = self.get(step.path)
        if found is None or found.version != step.expected_version:
            there = "but there is no such node" if found is None else f"found version {found.version}"
            raise BadVersion(f"{step.path}: expected version {step.expected_version}, {there}")
        return None

    def delete_ephemeral(self) -> None:
        """Deletes the ephemeral nodes of a session that has ended, and all nodes below them."""
        rows = self._connection.execute("SELECT path FROM nodes WHERE ephemeral ORDER BY path DESC")
        for (path,) in rows:
            below = self._connection.execute(
                "SELECT path FROM nodes WHERE path > ? AND path < ? ORDER BY path DESC",
                (f"{path}/", f"{path}0"),
            )
            for (child,) in (*below, (path,)):
                if self.exists(child):
                    self.delete(child, None)

    def _numbered(self, path: str) -> str:
        parent = parent_of(path)
        rows = self._connection.execute("SELECT next FROM sequences WHERE parent = ?", (parent,))
        number = rows[0][0] if rows else 0
        if not isinstance(number, int):
            raise NodeDamaged(
                f"{parent}: the number of its last sequential child must be an integer, not {number!r}"
            )
        self._number(parent, number + 1)
        self.edits.append(Numbered(parent, number + 1))
        return f"{path}{number:0{_SEQUENCE_DIGITS}d}"

    def _number(self, parent: str, following: int) -> None:
        self._connection.execute(
            "INSERT INTO sequences (parent, next) VALUES (?, ?) "
            "ON CONFLICT (parent) DO UPDATE SET next = excluded.next",
            (parent, following),
        )

    def _insert(self, node: Node) -> Node:
        parent = parent_of(node.path)
        if parent and not self.exists(parent):
            self._insert(Node(parent, b"", 0, node.created_ms, node.created_ms, False))
        self._store(node)
        if not node.ephemeral:
            self.tally = self.tally.plus(node)
            self.edits.append(node)
        self.changes.append(Change(ChangeKind.CREATED, node.path))
        self._note_children(node.path)
        return node

    def _store(self, node: Node) -> None:
        self._connection.execute(
            _STORE,
            (
                node.path,
                parent_of(node.path),
                node.value,
                node.version,
                node.created_ms,
                node.modified_ms,
                node.ephemeral,
            ),
        )

    def _note_children(self, path: str) -> None:
        parent = parent_of(path)
        if parent:
            self.changes.append(Change(ChangeKind.CHILDREN, parent))


def build_database(connection: SqlConnection, edits: Iterable[Edit], progress: Progress) -> None:
    """Fills a new database with nodes, in one transaction.

    :param progress: the progress to record; its tally is computed
    """
    nodes = SqliteNodes(connection)
    connection.execute("BEGIN IMMEDIATE")
    nodes.create()
    tally = Tally()
    for edit in edits:
        nodes.restore(edit)
        if isinstance(edit, Node):
            tally = tally.plus(edit)
    nodes.add_progress(progress._replace(tally=tally))
    connection.execute("COMMIT")
