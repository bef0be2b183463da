"""Holds one broker's matrix against Apache Pulsar's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from access_matrix.cells import CHANGED, CONNECT, NOT_ASKED, Matrix, read
from access_matrix.columns import COLUMNS
from access_matrix.rows import LEGACY

_FOLDER = Path(__file__).parent
_HTTP_REFUSALS = ("401", "403")
_BINARY_REFUSALS = ("AuthenticationError", "AuthorizationError")
_COLUMN_NAMES = tuple(column.name for column in COLUMNS)


@dataclass(frozen=True, slots=True)
class Difference:
    """One cell in which brokers differ."""

    row: str
    column: str
    theirs: str
    ours: str

    @property
    def is_stricter(self) -> bool:
        """Ours refuses what theirs does, or says otherwise that it refuses."""
        return is_refusal(self.ours)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why cells may differ; rows, columns and outcomes are patterns with ``*``."""

    rows: str
    columns: str
    theirs: str
    ours: str
    why: str

    def fits(self, difference: Difference) -> bool:
        return (
            fnmatchcase(difference.row, self.rows)
            and any(fnmatchcase(difference.column, one) for one in self.columns.split(" "))
            and fnmatchcase(difference.theirs, self.theirs)
            and fnmatchcase(difference.ours, self.ours)
        )


def is_refusal(outcome: str) -> bool:
    """Whether somebody may not do it."""
    return _first(outcome) in (*_HTTP_REFUSALS, *_BINARY_REFUSALS)


def _first(outcome: str) -> str:
    return outcome.removesuffix(CHANGED).partition("/")[0]


def is_done(outcome: str) -> bool:
    """Whether it was done."""
    return outcome[0] == "2" or outcome.startswith(("307", "ok"))


def recorded() -> Matrix:
    """What Apache Pulsar 4.0.8 answered."""
    return read((_FOLDER / "apache.tsv").read_text())


def of_our_own() -> Mapping[str, str]:
    """Rows of paths that Apache Pulsar does not have: which of its rows they take the access of.

    ``own.tsv`` says why, too: nothing was recorded that could decide it.
    """
    lines = (_FOLDER / "own.tsv").read_text().splitlines()[1:]
    return {row: like for row, like, _why in (line.split("\t") for line in lines)}


def unknown_to_apache() -> set[str]:
    """Rows that it answers as it does what it has never heard of, but for legacy names."""
    stranger = _COLUMN_NAMES.index("stranger")
    found = {row for row, outcomes in recorded().items() if outcomes[stranger] == "404"}
    return {row for row in found if not row.endswith(f" {LEGACY}")}


def explanations() -> Sequence[Explanation]:
    lines = (_FOLDER / "explained.tsv").read_text().splitlines()[1:]
    return [Explanation(*line.split("\t")) for line in lines]


def differences(theirs: Matrix, ours: Matrix) -> Iterator[Difference]:
    """Cells that differ in more than in the form of success or of a failure."""
    for row, outcomes in ours.items():
        for column, their, our in zip(_COLUMN_NAMES, theirs[row], outcomes, strict=True):
            if our != NOT_ASKED and not _agree(
                their, our, void=not is_done(theirs[row][-1]), possible=is_done(outcomes[-1])
            ):
                yield Difference(row, column, their, our)


def _agree(theirs: str, ours: str, *, void: bool, possible: bool) -> bool:
    """:param void: theirs cannot do it for anybody

    :param possible: ours can do it for somebody
    """
    if is_refusal(theirs):
        return _first(theirs) == _first(ours) and not ours.endswith(CHANGED) and "ok" not in ours
    if theirs == "closed":
        return ours == "closed"
    if void:
        return True
    return not is_refusal(ours) and (is_done(ours) or not is_done(theirs) or not possible)


def changed_although_refused(matrix: Matrix) -> list[tuple[str, str]]:
    """Cells that were refused, and something had changed afterwards."""
    return [
        (row, column)
        for row, outcomes in matrix.items()
        for column, outcome in zip(_COLUMN_NAMES, outcomes, strict=True)
        if row != CONNECT and not is_done(outcome) and outcome.endswith(CHANGED)
    ]
