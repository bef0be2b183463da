"""The nodes of a model ZooKeeper, and the transactions that change them: the same on every server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.metadata.zookeeper.messages import put_int, put_long

CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4
"""What happens to a node, with the numbers of the events that tell so."""
NO_NODE, BAD_VERSION, EPHEMERAL_PARENT, NODE_EXISTS, NOT_EMPTY = -101, -103, -108, -110, -111
UNIMPLEMENTED, BAD_ARGUMENTS, NOT_TRIED = -6, -8, -2
EPHEMERAL, SEQUENTIAL = 1, 2


class Refused(Exception):
    """With the code of the answer."""


@dataclass
class ModelNode:
    value: bytes
    zxid: int
    created_ms: int
    owner: int
    version: int
    changed_zxid: int
    modified_ms: int
    below_zxid: int
    """Of what made or deleted the last child."""
    children: set[str] = field(default_factory=set)
    made_below: int = 0


class Change(NamedTuple):
    """Of one node; ``value`` and ``owner`` of those that are made or changed."""

    kind: int
    path: str
    value: bytes = b""
    owner: int = 0


class Transaction(NamedTuple):
    zxid: int
    now_ms: int
    changes: tuple[Change, ...]
    """Empty: it was refused, or is of sessions."""


def parent_of(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def root() -> dict[str, ModelNode]:
    """The nodes of an ensemble that nobody has used yet."""
    return {"/": ModelNode(b"", 0, 0, 0, 0, 0, 0, 0)}


def found(nodes: dict[str, ModelNode], path: str) -> ModelNode:
    """:raises Refused: it is not there"""
    node = nodes.get(path)
    if node is None:
        raise Refused(NO_NODE)
    return node


def apply(nodes: dict[str, ModelNode], transaction: Transaction) -> None:
    zxid, now, changes = transaction
    for kind, path, value, owner in changes:
        if kind == CHANGED:
            node = nodes[path]
            node.value, node.version = value, node.version + 1
            node.changed_zxid, node.modified_ms = zxid, now
            continue
        parent = nodes[parent_of(path)]
        parent.below_zxid = zxid
        if kind == CREATED:
            nodes[path] = ModelNode(value, zxid, now, owner, 0, zxid, now, zxid)
            parent.children.add(path)
            parent.made_below += 1
        else:
            del nodes[path]
            parent.children.discard(path)


def put_stat(out: bytearray, node: ModelNode) -> None:
    put_long(out, node.zxid)
    put_long(out, node.changed_zxid)
    put_long(out, node.created_ms)
    put_long(out, node.modified_ms)
    put_int(out, node.version)
    # What was made and what was deleted below it.
    put_int(out, node.made_below * 2 - len(node.children))
    put_int(out, 0)
    put_long(out, node.owner)
    put_int(out, len(node.value))
    put_int(out, len(node.children))
    put_long(out, node.below_zxid)
