"""The list of the features of Apache Pulsar that Magnetar does not have, with reasons: ``left_out.tsv``.

The list is used in the refusals of commands, in REST responses with status 501, in the OpenAPI description,
and in a table in ``docs/admin-rest.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import NamedTuple

from magnetar.lazy_dataclass import dataclass


class Row(NamedTuple):
    """A request of Pulsar's admin interface that is left out."""

    method: str
    path: str
    """The path; ``{name}`` stands for a variable part."""
    older: Sequence[str]
    """Other paths of the same request."""
    what: str


@dataclass(slots=True)
class Subject:
    """The features that are left out for one reason."""

    name: str
    reason: str
    """One or two sentences, the last without a full stop."""
    commands: dict[str, str] = field(default_factory=dict)
    """The commands of ``pulsar-admin``, by group and name, with a description of what each command would do.
    """
    rows: list[Row] = field(default_factory=list)


@cache
def subjects() -> Mapping[str, Subject]:
    """Returns all subjects that are left out, by name."""
    found: dict[str, Subject] = {}
    # Read as a file beside this one, as commands are to start at once.
    for line in Path(__file__).with_suffix(".tsv").read_text("utf-8").splitlines()[1:]:
        subject, kind, name, older, what = line.split("\t")
        if kind == "reason":
            found[subject] = Subject(subject, what)
        elif kind == "command":
            found[subject].commands[name] = what
        else:
            paths = () if older == "-" else tuple(older.split(" "))
            found[subject].rows.append(Row(kind, name, paths, what))
    return found


@cache
def commands() -> Mapping[str, Subject]:
    """Returns the subject of each command of ``pulsar-admin`` that is left out, by group and name."""
    return {name: subject for subject in subjects().values() for name in subject.commands}


def why(subject: str) -> str:
    """Returns the reason why a subject is left out, as a sentence."""
    return subjects()[subject].reason
