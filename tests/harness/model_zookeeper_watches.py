"""What one connection with a model ZooKeeper watches."""

from __future__ import annotations

from collections.abc import Iterator

from model_zookeeper_tree import CHANGED, CHILDREN, CREATED, DELETED, Change, ModelNode, parent_of

PERSISTENT, RECURSIVE = 0, 1


class Watches:
    """Those that end with their first event, and those that stay."""

    def __init__(self) -> None:
        self.data: set[str] = set()
        """Also of nodes that are not there."""
        self.children: set[str] = set()
        self.persistent: set[str] = set()
        self.recursive: set[str] = set()

    def add(self, path: str, mode: int) -> None:
        """One that stays."""
        (self.recursive if mode == RECURSIVE else self.persistent).add(path)

    def events(self, change: Change) -> Iterator[tuple[int, str]]:
        """What is told of a change, in order: kind and path."""
        kind, path = change.kind, change.path
        once = path in self.data or (kind == DELETED and path in self.children)
        self.data.discard(path)
        if kind == DELETED:
            self.children.discard(path)
        if once or path in self.persistent or self._is_below_recursive(path):
            yield kind, path
        if kind == CHANGED or path == "/":
            return
        parent = parent_of(path)
        if parent in self.children or parent in self.persistent:
            self.children.discard(parent)
            yield CHILDREN, parent

    def resume(
        self,
        nodes: dict[str, ModelNode],
        last_zxid: int,
        data: list[str],
        absent: list[str],
        children: list[str],
    ) -> Iterator[tuple[int, str]]:
        """Those that end with their first event, on a new connection: what happened since ``last_zxid``."""
        for path in data:
            node = nodes.get(path)
            if node is None:
                yield DELETED, path
            elif node.changed_zxid > last_zxid:
                yield CHANGED, path
            else:
                self.data.add(path)
        for path in absent:
            if path in nodes:
                yield CREATED, path
            else:
                self.data.add(path)
        for path in children:
            node = nodes.get(path)
            if node is None:
                yield DELETED, path
            elif node.below_zxid > last_zxid:
                yield CHILDREN, path
            else:
                self.children.add(path)

    def _is_below_recursive(self, path: str) -> bool:
        return any(path == root or path.startswith(root.rstrip("/") + "/") for root in self.recursive)
