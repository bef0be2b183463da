"""What of a broker's file becomes bounds, filters and marks of its topics."""

from __future__ import annotations

import pytest

from magnetar.broker.dispatch.filters import FilterContext, FilteredEntry, FilterResult, UnknownFilter
from magnetar.broker.policies.values import DispatchRate, SubscribeRate
from magnetar.config.settings import ConfigurationError, default_settings
from magnetar.server.settings import (
    broker_entry_metadata_settings,
    broker_policies,
    find_filters,
    topic_settings,
)

INDEX = "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
TIMESTAMP = "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor"


class Everything:
    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult:
        return FilterResult.ACCEPT


NAME = f"{__name__}:Everything"


def test_rates() -> None:
    settings = default_settings(
        dispatch_throttling_rate_per_topic_in_msg=1,
        dispatch_throttling_rate_per_topic_in_byte=2,
        dispatch_throttling_rate_per_subscription_in_msg=3,
        dispatch_throttling_rate_relative_to_publish_rate=True,
        max_publish_rate_per_topic_in_messages=4,
        subscribe_throttling_rate_per_consumer=5,
        subscribe_rate_period_per_consumer_in_second=6,
    )
    found = broker_policies(settings)
    assert found.dispatch_rate == DispatchRate(1, 2, True)
    assert found.subscription_dispatch_rate == DispatchRate(3, 0, True)
    assert (found.publish_rate.messages, found.publish_rate.size) == (4, -1)
    assert found.subscribe_rate == SubscribeRate(5, 6)
    nothing = broker_policies(default_settings())
    assert not (nothing.dispatch_rate.limited)
    assert not (nothing.publish_rate.limited)


def test_marks_in_front_of_entries() -> None:
    assert not broker_entry_metadata_settings(default_settings()).wanted
    found = broker_entry_metadata_settings(
        default_settings(broker_entry_metadata_interceptors=(INDEX, TIMESTAMP))
    )
    assert (found.index, found.timestamp) == (True, True)
    with pytest.raises(ConfigurationError, match=r"unknown interceptor com\.example\.Mine"):
        topic_settings(default_settings(broker_entry_metadata_interceptors=(INDEX, "com.example.Mine")))


def test_policies_may_name_what_the_file_names_and_no_module() -> None:
    find = find_filters((NAME,))
    [found] = find([NAME])
    assert isinstance(found, Everything)
    for name in (f"{__name__}:Other", "os:system", "nobody-installed-it"):
        with pytest.raises(UnknownFilter, match=f"Entry filter '{name}' not found"):
            find([name])
