"""The tree of nodes in SQLite: what one operation does inside a transaction. Used on one worker."""

from __future__ import annotations

from collections.abc import Sequence

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

FORMAT_VERSION = 1

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
    # Kept beside the nodes: a parent that is deleted and made again goes on counting.
    "CREATE TABLE sequences (parent TEXT PRIMARY KEY, next INTEGER NOT NULL) WITHOUT ROWID",
    f"PRAGMA user_version = {FORMAT_VERSION}",
)

_SEQUENCE_DIGITS = 10


def parent_of(path: str) -> str:
    """The path above ``path``; ``/`` for those at the top, the empty string for ``/`` itself."""
    if path == "/":
        return ""
    return path[: path.rindex("/")] or "/"


class SqliteNodes:
    """Reads and changes nodes. Changes made are collected in :attr:`changes` until somebody takes them."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self.changes: list[Change] = []

    def prepare(self) -> int:
        """Makes the tables when missing and returns the format's version found or made."""
        connection = self._connection
        found = int(connection.execute("PRAGMA user_version")[0][0])
        if found:
            return found
        connection.execute("BEGIN IMMEDIATE")
        for statement in _TABLES:
            connection.execute(statement)
        connection.execute("COMMIT")
        return FORMAT_VERSION

    def database_bytes(self) -> int:
        """What the tables take in the database."""
        pages, size = (self._connection.execute(f"PRAGMA page_{part}")[0][0] for part in ("count", "size"))
        return int(pages) * int(size)

    def get(self, path: str) -> Node | None:
        """:raises NodeDamaged: its row is not one that was written here"""
        rows = self._connection.execute(
            "SELECT value, version, created_ms, modified_ms, ephemeral FROM nodes WHERE path = ?", (path,)
        )
        if not rows:
            return None
        value, *numbers = rows[0]
        if not isinstance(value, bytes) or not all(isinstance(number, int) for number in numbers):
            raise NodeDamaged(f"{path}: its row has values of other types")
        version, created_ms, modified_ms, ephemeral = numbers
        # Those of an earlier session are removed when the store is opened: what is left is this one's.
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
        """:raises BadVersion: the condition does not hold"""
        if sequential:
            path = self._numbered(path)
        old = self.get(path)
        if old is None:
            if expected is not None and expected != MUST_NOT_EXIST:
                raise BadVersion(f"{path}: expected version {expected}, there is no such node")
            return self._insert(Node(path, value, 0, now_ms, now_ms, ephemeral, ephemeral))
        if expected is not None and expected != old.version:
            wanted = "no node" if expected == MUST_NOT_EXIST else f"version {expected}"
            raise BadVersion(f"{path}: expected {wanted}, found version {old.version}")
        node = Node(path, value, old.version + 1, old.created_ms, now_ms, old.ephemeral, old.own)
        self._connection.execute(
            "UPDATE nodes SET value = ?, version = ?, modified_ms = ? WHERE path = ?",
            (value, node.version, now_ms, path),
        )
        self.changes.append(Change(ChangeKind.CHANGED, path))
        return node

    def delete(self, path: str, expected: int | None) -> None:
        """:raises NodeMissing: nothing there

        :raises BadVersion: another version is there
        :raises NodeNotEmpty: it has children
        """
        old = self.get(path)
        if old is None:
            raise NodeMissing(f"{path}: no such node")
        if expected is not None and expected != old.version:
            raise BadVersion(f"{path}: expected version {expected}, found version {old.version}")
        if self._connection.execute("SELECT 1 FROM nodes WHERE parent = ? LIMIT 1", (path,)):
            raise NodeNotEmpty(f"{path}: has children")
        self._connection.execute("DELETE FROM nodes WHERE path = ?", (path,))
        self.changes.append(Change(ChangeKind.DELETED, path))
        self._note_children(path)

    def change_together(self, steps: Sequence[Step], now_ms: int) -> list[Node | None]:
        """:raises MetadataError: a step cannot be done; those before it are, and are to be undone"""
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
            there = "there is no such node" if found is None else f"found version {found.version}"
            raise BadVersion(f"{step.path}: expected version {step.expected_version}, {there}")
        return None

    def delete_ephemeral(self) -> None:
        """Removes what belongs to a session that has ended; children of such nodes go with them."""
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
            raise NodeDamaged(f"{parent}: the number of its last sequential child is {number!r}")
        self._connection.execute(
            "INSERT INTO sequences (parent, next) VALUES (?, ?) "
            "ON CONFLICT (parent) DO UPDATE SET next = excluded.next",
            (parent, number + 1),
        )
        return f"{path}{number:0{_SEQUENCE_DIGITS}d}"

    def _insert(self, node: Node) -> Node:
        parent = parent_of(node.path)
        if parent and not self.exists(parent):
            self._insert(Node(parent, b"", 0, node.created_ms, node.created_ms, False))
        self._connection.execute(
            "INSERT INTO nodes (path, parent, value, version, created_ms, modified_ms, ephemeral) "
            "VALUES (?, ?, ?, ?, ?, ?, ?)",
            (node.path, parent, node.value, 0, node.created_ms, node.modified_ms, node.ephemeral),
        )
        self.changes.append(Change(ChangeKind.CREATED, node.path))
        self._note_children(node.path)
        return node

    def _note_children(self, path: str) -> None:
        parent = parent_of(path)
        if parent:
            self.changes.append(Change(ChangeKind.CHILDREN, parent))
