"""Several operations in one ZooKeeper request, MULTI: all of them take effect, in their order, or none.

Request and answer have no record in ``zookeeper.jute`` (``MultiOperationRecord``, ``MultiResponse``): each
operation follows a ``MultiHeader``, and a last header ends them. The answer to a failed request has no error
of its own, but one for each operation.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.zookeeper.jute import JuteError, JuteReader, put_bool, put_int
from magnetar.metadata.zookeeper.messages import OK, Operation, Stat, take_stat

_FAILED = -1
"""In a header: an error follows, and no result."""
_NOT_TRIED = -2
"""Runtime inconsistency: the error of the operations after the one that failed."""


@dataclass(frozen=True, slots=True)
class OperationResult:
    """The result of one operation."""

    error: int = OK
    """OK also for operations before the one that failed."""
    path: str = ""
    """Of CREATE2; includes the number of a sequential node."""
    stat: Stat | None = None
    """Of CREATE2 and SET_DATA."""


def multi(operations: Sequence[tuple[Operation, bytes]]) -> bytes:
    """:param operations: CREATE2, DELETE, SET_DATA and CHECK, each with its packet"""
    into = bytearray()
    for operation, packet in operations:
        _put_header(into, operation, end=False)
        into += packet
    _put_header(into, _FAILED, end=True)
    return bytes(into)


def take_results(reader: JuteReader, asked: Sequence[Operation]) -> list[OperationResult]:
    """Returns one result for each operation, in their order.

    :raises JuteError: it is another record
    """
    results: list[OperationResult] = []
    while True:
        kind, end, error = reader.take_int(), reader.take_bool(), reader.take_int()
        if end:
            if len(results) != len(asked):
                raise JuteError(f"{len(results)} results of {len(asked)} operations")
            return results
        if kind != _FAILED and kind not in asked[len(results) : len(results) + 1]:
            raise JuteError(f"the result of an operation {kind}, which was not the next one")
        results.append(_take_result(reader, kind, error))


def failed(results: Sequence[OperationResult]) -> int | None:
    """Returns the index of the operation that failed; None: all have taken effect."""
    errors = [(at, result.error) for at, result in enumerate(results) if result.error != OK]
    reasons = [at for at, error in errors if error != _NOT_TRIED]
    return reasons[0] if reasons else errors[0][0] if errors else None


def _put_header(into: bytearray, kind: int, *, end: bool) -> None:
    put_int(into, kind)
    put_bool(into, end)
    put_int(into, -1)


def _take_result(reader: JuteReader, kind: int, error: int) -> OperationResult:
    if kind == _FAILED:
        # The header contains it too.
        return OperationResult(reader.take_int())
    if kind == Operation.CREATE2:
        return OperationResult(error, reader.take_text(), take_stat(reader))
    return OperationResult(error, stat=take_stat(reader) if kind == Operation.SET_DATA else None)
