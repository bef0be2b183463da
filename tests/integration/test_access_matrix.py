"""Who may do what: every endpoint and command as every kind of client, against what Apache Pulsar answers."""

from __future__ import annotations

import fcntl
from collections.abc import Callable

import pytest
from access_matrix import replicating, websockets
from access_matrix.binary import connect
from access_matrix.calls import Calls
from access_matrix.cells import NOT_ASKED, Asking, Matrix, read, write
from access_matrix.columns import COLUMNS, SETTINGS
from access_matrix.comparison import (
    Difference,
    Explanation,
    changed_although_refused,
    differences,
    explanations,
    is_done,
    is_refusal,
    of_our_own,
    recorded,
    unknown_to_apache,
)
from access_matrix.objects import make_namespaces
from access_matrix.rows import LEGACY, rows
from raw_client import Refused
from server import Server

pytestmark = pytest.mark.timeout(900)  # a minute of processor time; all of it is the first test's fixture

_NOT_UNDERSTOOD = tuple(
    f"{row.endpoint.method} {row.pattern}"
    for row in rows()
    # There are no filters to be named; and subscriptions of these topics are made by clients alone.
    if row.ends("/entryFilters")
    or (row.domain == "non-persistent" and row.ends("/subscription/{subscription}"))
)


@pytest.fixture(scope="module")
def matrix(
    start_server: Callable[..., Server], tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Matrix:
    """What a broker answers; the processes that share the tests ask one broker once."""
    folder = tmp_path_factory.getbasetemp()
    file = (folder if worker_id == "master" else folder.parent) / "access_matrix.tsv"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            server = start_server(**SETTINGS)
            file.write_text(write(Asking(server.http_url, server.port).everything()))
    return read(file.read_text())


def test_nobody_may_more_or_less_than_in_apache_pulsar(matrix: Matrix) -> None:
    found = list(differences(recorded(), matrix))
    explained: dict[Difference, Explanation] = {}
    for difference in found:
        for explanation in explanations():
            if explanation.fits(difference):
                explained[difference] = explanation
                break
    assert [difference for difference in found if difference not in explained] == []
    assert [one for one in explanations() if one not in explained.values()] == []


_OF_ITSELF = "Apache Pulsar differs from itself"


def test_what_apache_pulsar_refuses_is_refused_here(matrix: Matrix) -> None:
    """Whatever is explained, but for what Apache Pulsar allows by another path."""
    laxer = [one for one in differences(recorded(), matrix) if not one.is_stricter and is_refusal(one.theirs)]
    itself = [explanation for explanation in explanations() if explanation.why.startswith(_OF_ITSELF)]
    assert [one for one in laxer if not any(explanation.fits(one) for explanation in itself)] == []
    assert {one.row.rpartition(" ")[2] for one in laxer} == {LEGACY}


def test_what_is_refused_changes_nothing(matrix: Matrix) -> None:
    assert changed_although_refused(matrix) == []


def test_legacy_names_give_no_other_access(matrix: Matrix) -> None:
    for row in rows():
        if row.way != LEGACY:
            continue
        plain = matrix[f"{row.endpoint.method} {row.endpoint.path}"]
        for ours, other in zip(matrix[row.key], plain, strict=True):
            assert ours == NOT_ASKED or is_refusal(ours) == is_refusal(other), row.key


_OF_A_PLAN = {f"{method} /admin/v2/magnetar/read-plans/{{plan}}" for method in ("PUT", "DELETE")}
"""Whoever has the name of a plan, which is a secret of whoever made it."""


def test_what_only_magnetar_has_takes_the_access_of_something_that_apache_pulsar_has(matrix: Matrix) -> None:
    own = of_our_own()
    assert own.keys() == unknown_to_apache() - _OF_A_PLAN
    for row, like in own.items():
        for ours, other in zip(matrix[row], recorded()[like], strict=True):
            assert ours == NOT_ASKED or is_refusal(ours) == is_refusal(other), (row, ours, other)


def test_superusers_are_told_what_cannot_be_and_nothing_else_stops_them(matrix: Matrix) -> None:
    """Else nothing would be said of the others."""
    void = {row: outcomes[-1] for row, outcomes in matrix.items() if not is_done(outcomes[-1])}
    told = {"404", "405", "406", "409", "412", "501", "NotAllowedError", "TopicNotFound"}
    unexpected = [
        row for row, outcome in void.items() if outcome not in told and not row.startswith(_NOT_UNDERSTOOD)
    ]
    assert unexpected == []


def test_a_topic_named_in_a_parameter_wants_what_the_topic_wants_in_the_path(
    start_server: Callable[..., Server],
) -> None:
    namings = list(websockets.namings())
    assert {one.parameter for one in namings} == websockets.parameters_that_name_topics()
    calls = Calls(start_server(**SETTINGS).http_url)
    try:
        make_namespaces(calls)
        differing = []
        for column in (column for column in COLUMNS if not column.unknown):
            needs = {need for one in namings for need in one.needs}
            allowed = {need: websockets.may(calls, column, need) for need in needs}
            for one in namings:
                expected = all(allowed[need] for need in one.needs)
                if websockets.asked(calls, column, one.path) != expected:
                    differing.append((column.name, one.path, expected))
        assert differing == []
    finally:
        calls.close()


def test_who_may_replicate(start_server: Callable[..., Server]) -> None:
    """Superusers, and whom the setting names if they may produce; in Apache Pulsar whoever may produce."""
    server = start_server(**replicating.SETTINGS_WITH_ROLES)
    calls = Calls(server.http_url)
    make_namespaces(calls)
    replicating.let_produce(calls)
    replicating.make_shadow(calls, server.port)
    calls.close()
    found = {}
    for column in (column for column in replicating.ALL if not column.unknown):
        for what in replicating.ASKED:
            try:
                client = connect(server.port, column)
            except (ConnectionError, Refused):
                continue
            found[column.name, what] = replicating.outcome_of(client, what)
            client.close()
    assert {column for column, _ in found} >= {"producer", "tenant-admin", "superuser", "replicator"}
    for (column, what), outcome in found.items():
        assert outcome == ("ok" if column in replicating.ALLOWED else "AuthorizationError"), (column, what)
