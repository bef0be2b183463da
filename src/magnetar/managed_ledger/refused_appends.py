"""Appends that the ledger store refused, until they can be reported to the listener."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import NamedTuple

from magnetar.managed_ledger.append import Append


class RefusedAppend(NamedTuple):
    before: int
    """The entry id in the current ledger that follows everything appended before."""
    append: Append
    error: Exception


class RefusedAppends:
    """Reports refused appends in order: clients take an error only after the receipts of earlier messages.

    :param report: tells the listener of a managed ledger that an append failed
    """

    __slots__ = ("_report", "_waiting")

    def __init__(self, report: Callable[[Append, Exception], None]) -> None:
        self._report = report
        self._waiting: deque[RefusedAppend] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, before: int, append: Append, error: Exception) -> None:
        """:param before: the entry id that follows everything appended to the current ledger so far"""
        self._waiting.append(RefusedAppend(before, append, error))

    def next_before(self) -> float:
        """The id below which all entries must be durable before the first report; infinite if none waits."""
        return self._waiting[0].before if self._waiting else inf

    def report_next(self) -> None:
        """Reports the first append."""
        refused = self._waiting.popleft()
        self._report(refused.append, refused.error)

    def report_all(self) -> None:
        """Reports all appends; called when the current ledger ends, and no receipts can follow."""
        while self._waiting:
            self.report_next()
