"""A namespace whose ledgers only some groups of bookies get."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from test_namespace_admin import NAME, Mine

from magnetar.errors import MetadataFailure, NamespaceNotFound, NotSupported
from magnetar.ledger.interface import Groups

FIELD = "bookieAffinityGroup"
LOCAL = "/admin/local-policies/mine/n"


class InCluster(Mine):
    """Where entries have several copies."""

    def __init__(self) -> None:
        super().__init__()
        self.broker.settings = replace(self.broker.settings, one_copy=False)

    def set(self, value: Any) -> None:
        self.run(self.admin.namespaces.set_local_policy("mine/n", FIELD, value))

    @property
    def groups(self) -> Groups | None:
        """Of the topic's next ledger, and of its cursors'."""
        ledger = self.topic(NAME).managed_ledger
        return ledger.settings.quorums.groups


def primary(first: str, further: str | None = None) -> dict[str, str]:
    found = {"bookkeeperAffinityGroupPrimary": first}
    return found if further is None else {**found, "bookkeeperAffinityGroupSecondary": further}


def test_topics_go_by_it_from_their_next_ledger_on() -> None:
    mine = InCluster()
    assert mine.groups is None
    mine.set(primary("g1"))
    assert mine.groups == Groups(frozenset({"g1"}))
    mine.set(primary("g1, g3", "g2"))
    assert mine.groups == Groups(frozenset({"g1", "g3"}), frozenset({"g2"}))
    for nothing in ({}, primary(""), None):
        mine.set(nothing)
        assert mine.groups is None
    with pytest.raises(NamespaceNotFound):
        mine.run(mine.admin.namespaces.set_local_policy("mine/none", FIELD, primary("g1")))


def test_what_another_broker_writes_counts_too() -> None:
    mine = InCluster()
    assert mine.groups is None
    metadata = mine.broker.metadata
    node = mine.run(metadata.get(LOCAL))
    record = json.loads(node.value) | {FIELD: primary("g1")}
    mine.run(metadata.put(LOCAL, json.dumps(record).encode()))
    mine.world.simulation.loop.run_for(1)
    assert mine.groups == Groups(frozenset({"g1"}))


def test_what_is_none_is_refused() -> None:
    mine = InCluster()
    with pytest.raises(MetadataFailure, match=FIELD):
        mine.set("g1")
    assert mine.run(mine.admin.namespaces.local_policies("mine/n")).get(FIELD) is None


def test_it_is_refused_where_entries_have_one_copy() -> None:
    mine = Mine()
    with pytest.raises(NotSupported, match="need a cluster"):
        mine.run(mine.admin.namespaces.set_local_policy("mine/n", FIELD, primary("g1")))
    mine.run(mine.admin.namespaces.set_local_policy("mine/n", FIELD, None))
