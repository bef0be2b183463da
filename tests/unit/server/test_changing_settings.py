"""Settings that change while a broker runs: what Apache Pulsar changes is in effect or refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from magnetar.broker.dispatch.filters import no_filters
from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.policies.dynamic import SettingRefused
from magnetar.config.settings import default_settings
from magnetar.config.table import Setting, cluster_settings_table, settings_table
from magnetar.server.addresses import Advertised
from magnetar.server.changing_settings import BrokerOptions, changeable_names, unchangeable
from magnetar.server.settings import broker_settings, entry_cache_settings

NOBODY = Advertised(Addresses(None), {})
OF_ROLES = {"superUserRoles", "proxyRoles", "magnetarReplicationRoles"}
"""They are taken where roles are (server.security)."""

COUNTS_WITH = {"defaultNumPartitions": {"allow_auto_topic_creation_type": "partitioned"}}
"""What else has to be in the file for a setting to say anything."""


def another(row: Setting) -> str:
    """A text that says something else than the default."""
    if row.type == "bool":
        return "false" if row.default == "true" else "true"
    if row.type.startswith(("enum", "list{")):
        choices = row.type.partition("{")[2].rstrip("}?").split(",")
        return next(choice for choice in choices if choice != row.default)
    return "0.5" if row.type == "double" else "7"


def gone_by(options: BrokerOptions) -> tuple[Any, ...]:
    now = options.now
    known = broker_settings(now, NOBODY, "", {})
    # What finds filters is made anew each time.
    known = replace(known, topic=replace(known.topic, find_filters=no_filters))
    return known, entry_cache_settings(now), now.auto_skip_non_recoverable_data


@pytest.mark.parametrize("cluster", [False, True])
def test_each_that_pulsar_changes_can_be_changed_or_is_refused_with_a_reason(cluster: bool) -> None:
    table = cluster_settings_table() if cluster else settings_table()
    pulsars = {row.name for row in table.values() if row.dynamic}
    changeable, refused = set(changeable_names(cluster=cluster)), unchangeable(cluster=cluster)
    assert changeable.isdisjoint(refused)
    assert changeable | set(refused) == pulsars
    assert all(reason and not reason.endswith((".", ":")) for reason in refused.values())
    assert {name for name in pulsars if "Throttling" in name or "PublishRate" in name} - changeable == {
        "brokerPublisherThrottlingTickTimeMillis",
        "topicPublisherThrottlingTickTimeMillis",
    }
    assert refused["clientLibraryVersionCheckEnabled"].endswith(": refuse old clients")
    assert ("loadBalancerSheddingEnabled" in refused) is not cluster


@pytest.mark.parametrize("cluster", [False, True])
def test_what_can_be_changed_changes_what_a_broker_goes_by(cluster: bool) -> None:
    names = BrokerOptions(default_settings(), cluster=cluster).dynamic.keys() - OF_ROLES
    assert len(names) > 40
    table = settings_table()
    for name in names:
        of_file = default_settings(**COUNTS_WITH.get(name, {}))
        options = BrokerOptions(of_file, cluster=cluster)
        at_first, setting = gone_by(options), options.dynamic[name]
        text = another(table[name])
        setting.check(text)
        assert setting.apply(text), name
        assert gone_by(options) != at_first, name
        assert not setting.apply(text), name
        assert setting.apply(None), name
        assert gone_by(options) == at_first, name


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("dispatchThrottlingRatePerTopicInMsg", "many", "must be a whole number"),
        ("maxTopicsPerNamespace", "-1", "must be at least 0"),
        ("subscriptionTypesEnabled", "Mine", "must be a list of"),
    ],
)
def test_a_text_that_is_none_is_refused_and_counts_for_nothing(name: str, text: str, wanted: str) -> None:
    setting = BrokerOptions(default_settings(), cluster=False).dynamic[name]
    with pytest.raises(SettingRefused, match=wanted):
        setting.check(text)
    assert not setting.apply(text), "as another broker stored it"
