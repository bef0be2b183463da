"""What writes ask of a model ZooKeeper, what they change, and what is answered; several of them as one."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import NamedTuple

from model_zookeeper_tree import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    CHANGED,
    CREATED,
    DELETED,
    EPHEMERAL,
    EPHEMERAL_PARENT,
    NODE_EXISTS,
    NOT_EMPTY,
    NOT_TRIED,
    SEQUENTIAL,
    Change,
    ModelNode,
    Refused,
    Transaction,
    apply,
    found,
    parent_of,
    put_stat,
)

from magnetar.metadata.zookeeper.messages import OK, JuteReader, Operation, put_bool, put_int, put_text

WRITES = (Operation.CREATE2, Operation.DELETE, Operation.SET_DATA, Operation.MULTI)
_FAILED = -1


class Asked(NamedTuple):
    operation: int
    path: str
    value: bytes
    number: int
    """Flags of what is to be made, else the version that is wanted."""


def take_asked(operation: int, reader: JuteReader) -> Asked:
    """One write, or one step of several."""
    path = reader.take_text()
    value = reader.take_bytes() if operation in (Operation.CREATE2, Operation.SET_DATA) else b""
    if operation == Operation.CREATE2:
        for _ in range(reader.take_int()):
            reader.take_int()
            reader.take_text()
            reader.take_text()
    return Asked(operation, path, value, reader.take_int())


def take_all_asked(reader: JuteReader) -> list[Asked]:
    """The steps of a MULTI."""
    asked = []
    while True:
        operation, end, _error = reader.take_int(), reader.take_bool(), reader.take_int()
        if end:
            return asked
        asked.append(take_asked(operation, reader))


def creation(nodes: dict[str, ModelNode], path: str, value: bytes, flags: int, owner: int) -> Change:
    """:raises Refused: it cannot be made"""
    parent = found(nodes, parent_of(path))
    if flags & SEQUENTIAL:
        path = f"{path}{parent.made_below:010d}"
    if path in nodes:
        raise Refused(NODE_EXISTS)
    if parent.owner:
        raise Refused(EPHEMERAL_PARENT)
    return Change(CREATED, path, value, owner if flags & EPHEMERAL else 0)


def deletion(nodes: dict[str, ModelNode], path: str, version: int) -> Change:
    """:raises Refused: it cannot be deleted"""
    if path == "/":
        raise Refused(BAD_ARGUMENTS)
    if _of_version(nodes, path, version).children:
        raise Refused(NOT_EMPTY)
    return Change(DELETED, path)


def planned(nodes: dict[str, ModelNode], asked: Asked, session: int) -> Change | None:
    """None: nothing is changed, for it only checks.

    :raises Refused: it cannot be done
    """
    operation, path, value, number = asked
    if operation == Operation.CREATE2:
        return creation(nodes, path, value, number, session)
    if operation == Operation.DELETE:
        return deletion(nodes, path, number)
    _of_version(nodes, path, number)
    return Change(CHANGED, path, value) if operation == Operation.SET_DATA else None


def answered(nodes: dict[str, ModelNode], asked: Asked, change: Change | None) -> bytes:
    """What is said of it when it is done."""
    out = bytearray()
    if change is not None and asked.operation != Operation.DELETE:
        if asked.operation == Operation.CREATE2:
            put_text(out, change.path)
        put_stat(out, nodes[change.path])
    return bytes(out)


def together(
    nodes: dict[str, ModelNode], zxid: int, now_ms: int, asked: Sequence[Asked], session: int
) -> tuple[list[Change], bytes]:
    """What steps change, none when one of them cannot be done, and what they are answered.

    ``nodes`` are left as they were: each step is tried on what those before it leave.
    """
    before: dict[str, ModelNode | None] = {}
    changes: list[Change] = []
    answers: list[bytes] = []
    try:
        for each in asked:
            change = planned(nodes, each, session)
            if change is not None:
                for path in (change.path, parent_of(change.path)):
                    before.setdefault(path, deepcopy(nodes.get(path)))
                apply(nodes, Transaction(zxid, now_ms, (change,)))
                changes.append(change)
            answers.append(answered(nodes, each, change))
    except Refused as refused:
        behind = len(asked) - len(answers) - 1
        return [], _all_failed([*(OK for _ in answers), refused.args[0], *([NOT_TRIED] * behind)])
    finally:
        for path, node in before.items():
            nodes.pop(path, None)
            if node is not None:
                nodes[path] = node
    out = bytearray()
    for each, answer in zip(asked, answers, strict=True):
        _put_header(out, each.operation, OK)
        out += answer
    _put_header(out, _FAILED, -1, end=True)
    return changes, bytes(out)


def _all_failed(errors: Sequence[int]) -> bytes:
    out = bytearray()
    for error in errors:
        _put_header(out, _FAILED, error)
        put_int(out, error)
    _put_header(out, _FAILED, -1, end=True)
    return bytes(out)


def _put_header(out: bytearray, kind: int, error: int, *, end: bool = False) -> None:
    put_int(out, kind)
    put_bool(out, end)
    put_int(out, error)


def _of_version(nodes: dict[str, ModelNode], path: str, version: int) -> ModelNode:
    node = found(nodes, path)
    if version not in (-1, node.version):
        raise Refused(BAD_VERSION)
    return node
