"""The table of figures names attributes that exist, and metrics that have a help text."""

from __future__ import annotations

from fnmatch import fnmatchcase
from operator import attrgetter
from pathlib import Path

import pytest

import magnetar.http.metrics
from magnetar.broker.stats.figure_table import KINDS, figures_of, subscription_json
from magnetar.broker.stats.figures import (
    ManagedLedgerMetrics,
    MetricsSnapshot,
    SubscriptionMetrics,
    TopicMetrics,
)
from magnetar.telemetry.instruments import InstrumentKind

HELP = Path(magnetar.http.metrics.__file__).with_name("help.tsv")
LEVELS = {"topic": {"topic", "namespace", "both", ""}, "consumer": {"subscription", ""}}


@pytest.mark.parametrize("kind", KINDS)
def test_each_row_has_an_attribute_and_known_names(kind: str) -> None:
    helped = [line.partition("\t")[0] for line in HELP.read_text().splitlines()]
    rows = figures_of(kind)
    assert rows
    for row in rows:
        if row.figure and kind != "broker":
            assert hasattr(KINDS[kind], row.figure.partition(".")[0]), row.figure
        assert row.prometheus or row.otlp
        for name in {row.prometheus, row.sum} - {""}:
            assert any(fnmatchcase(name, each) for each in helped), name
        assert row.level in LEVELS.get(kind, {""})
        assert bool(row.otlp) == bool(row.instrument) == bool(row.unit)
        assert not row.instrument or InstrumentKind(row.instrument)
    for levels in ("both", "topic", ""), ("both", "namespace"):
        printed = [row.prometheus for row in rows if row.prometheus and row.level in levels]
        assert len(printed) == len(set(printed))


def test_figures_keep_their_types_in_json() -> None:
    now = SubscriptionMetrics("s", rate_out=1.0, backlog=2, blocked_on_unacked=True)
    found = subscription_json(now)
    assert (found["msgRateOut"], found["msgBacklog"]) == (1.0, 2)
    assert found["blockedSubscriptionOnUnackedMsgs"] is True
    assert "backlogSize" not in found


def test_figures_of_the_broker_are_found_in_a_snapshot() -> None:
    snapshot = MetricsSnapshot("c", "b", managed_ledger_count=3)
    assert {row.figure: row.of(snapshot) for row in figures_of("broker")} == {
        row.figure: attrgetter(row.figure)(snapshot) for row in figures_of("broker")
    }


def test_a_real_figure_is_printed_with_a_fraction_and_a_missing_feature_as_zero() -> None:
    by_name = {row.prometheus: row for kind in ("topic", "managed ledger") for row in figures_of(kind)}
    ledger = ManagedLedgerMetrics("public/default", backlog=7)
    assert repr(by_name["pulsar_ml_NumberOfMessagesInBacklog"].of(ledger)) == "7.0"
    topic = TopicMetrics("persistent://public/default/t", "public/default", backlog=7)
    assert repr(by_name["pulsar_msg_backlog"].of(topic)) == "7"
    assert by_name["pulsar_txn_tb_active_total"].of(topic) == 0
