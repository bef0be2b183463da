"""Appends that are not durable yet or that the store refused, and the listener for their outcomes."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, NamedTuple, Protocol

from magnetar.invariants import must
from magnetar.ledger.interface import EntryRun
from magnetar.managed_ledger.position import Position


class Append:
    """An append of the entries ``buffer[starts[i]:ends[i]]`` for i in [first, first + count).

    The entries are kept until they are durable, because they are written again if the ledger fails. The
    caller gets ``context`` back with the outcome. After a split, both parts have the same ``context``, and
    ``first`` of each part is still an index into the entries that the caller passed.
    """

    __slots__ = (
        "buffer",
        "context",
        "count",
        "ends",
        "first",
        "first_entry_id",
        "ledger_id",
        "size",
        "starts",
    )

    def __init__(
        self,
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        first: int,
        count: int,
        size: int,
        context: Any,
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.ends = ends
        self.first = first
        self.count = count
        self.size = size
        self.context = context
        self.ledger_id = -1
        self.first_entry_id = -1

    def split(self, count: int) -> Append:
        """Shortens this append to its first ``count`` entries; returns an append with the other entries."""
        middle = self.first + count
        end = self.first + self.count
        rest_size = sum(self.ends[middle:end]) - sum(self.starts[middle:end])
        rest = Append(
            self.buffer, self.starts, self.ends, middle, self.count - count, rest_size, self.context
        )
        rest.ledger_id = self.ledger_id
        if self.first_entry_id >= 0:
            rest.first_entry_id = self.first_entry_id + count
        self.count = count
        self.size -= rest_size
        return rest

    def as_run(self) -> EntryRun:
        """Returns the entries as a run, with the ledger id and entry ids under which they were written."""
        end = self.first + self.count
        return EntryRun(
            self.ledger_id,
            self.first_entry_id,
            self.count,
            self.buffer,
            self.starts[self.first : end],
            self.ends[self.first : end],
        )


class AppendQueue:
    """Appends that are not durable yet, in order: first the appends passed to a ledger, then the waiting
    appends.
    """

    __slots__ = ("waiting", "written")

    def __init__(self) -> None:
        self.written: deque[Append] = deque()
        self.waiting: deque[Append] = deque()

    def __len__(self) -> int:
        return len(self.written) + len(self.waiting)

    def __iter__(self) -> Iterator[Append]:
        yield from self.written
        yield from self.waiting

    def durable_through(self, last_entry_id: int) -> list[Append]:
        """Removes and returns the appends up to ``last_entry_id``; an append that reaches further is
        split."""
        written = self.written
        done: list[Append] = []
        while written:
            operation = written[0]
            last = operation.first_entry_id + operation.count - 1
            if last > last_entry_id:
                if operation.first_entry_id <= last_entry_id:
                    written[0] = operation.split(last_entry_id - operation.first_entry_id + 1)
                    done.append(operation)
                break
            done.append(written.popleft())
        return done

    def write_again(self) -> None:
        """Moves the appends that were passed to a ledger back, in front of the waiting appends."""
        self.waiting.extendleft(reversed(self.written))
        self.written.clear()

    def check(self, name: str, durable: Position) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the positions of the written appends do not ascend, or do not follow
            ``durable``
        """
        after = durable
        for append in self.written:
            where = (append.ledger_id, append.first_entry_id)
            must(append.count > 0, name, "has an append of", append.count, "entries")
            must(where > after, name, "has an append at", where, "behind", after)
            after = (append.ledger_id, append.first_entry_id + append.count - 1)


class AppendListener(Protocol):
    """The user of a managed ledger, which gets the outcomes of its appends on the event loop."""

    def on_durable(self, appends: Sequence[Append]) -> None:
        """Reports appends that have become durable, once per commit, in the order of their positions."""
        ...

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        """Reports appends that will not be stored."""
        ...

    def on_fenced(self) -> None:
        """Reports that another broker owns the managed ledger, which accepts no more appends."""
        ...

    def fail(self, error: BaseException) -> None:
        """Reports an internal error: the state of the managed ledger or of a cursor may be wrong.

        The listener must stop all writes at once (:meth:`ManagedLedger.abandon`), and close the managed
        ledger later.
        """
        ...


class RefusedAppend(NamedTuple):
    """An append that the ledger store refused, and that is still to be reported to the listener."""

    before: int
    """The number of entries that earlier appends have in the current ledger; their entry ids are below this
    number.
    """
    append: Append
    error: Exception


class RefusedAppends:
    """Refused appends, reported in order: clients accept an error only after the receipts of earlier
    messages.

    :param report: reports a failed append to the listener of the managed ledger
    """

    __slots__ = ("_report", "_waiting")

    def __init__(self, report: Callable[[Append, Exception], None]) -> None:
        self._report = report
        self._waiting: deque[RefusedAppend] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, before: int, append: Append, error: Exception) -> None:
        """Adds a refused append, which is reported after all earlier entries.

        :param before: the entry id after the last entry appended to the current ledger so far
        """
        self._waiting.append(RefusedAppend(before, append, error))

    def next_before(self) -> float:
        """Returns the entry id below which all entries must be durable before the next report; infinity if no
        refused append waits."""
        return self._waiting[0].before if self._waiting else inf

    def report_next(self) -> None:
        """Reports the first refused append."""
        refused = self._waiting.popleft()
        self._report(refused.append, refused.error)

    def report_all(self) -> None:
        """Reports all refused appends; called when the current ledger ends: no further receipts follow."""
        while self._waiting:
            self.report_next()
