"""Names of replicators, as Apache Pulsar 4.0.8 makes them between its clusters r-a and r-b."""

from __future__ import annotations

import pytest

from magnetar.naming.replicators import (
    DEFAULT_PREFIX,
    cluster_of_cursor,
    cursor_name,
    producer_name,
    remote_cluster_of,
)


def test_names_are_those_of_pulsar() -> None:
    assert producer_name(DEFAULT_PREFIX, "r-a", "r-b") == "pulsar.repl.r-a-->r-b"
    assert cursor_name(DEFAULT_PREFIX, "r-b") == "pulsar.repl.r-b"


@pytest.mark.parametrize(
    ("name", "cluster"),
    [
        ("pulsar.repl.r-a-->r-b", "r-a"),
        ("pulsar.repl.dotted.name-->r-b", "dotted.name"),
        ("pulsar.repl.r-a", "r-a"),
        ("pulsar.repl.", ""),
        ("pulsar.repl", None),
        ("pulsar.replica", None),
        ("alpha", None),
        ("r-a-->r-b", None),
    ],
)
def test_the_cluster_that_sends(name: str, cluster: str | None) -> None:
    assert remote_cluster_of(DEFAULT_PREFIX, name) == cluster


def test_another_prefix() -> None:
    name = producer_name("between", "east", "west")
    assert remote_cluster_of("between", name) == "east"
    assert remote_cluster_of(DEFAULT_PREFIX, name) is None
    assert cluster_of_cursor("between", cursor_name("between", "west")) == "west"
    assert cluster_of_cursor("between", cursor_name(DEFAULT_PREFIX, "west")) is None
