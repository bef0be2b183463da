"""How a topic's messages are dispatched, from the broker's settings and the topic's policies."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import EntryFilter, FindFilters, UnknownFilter
from magnetar.broker.policies.effective import EffectivePolicies

log = logging.getLogger(__name__)


class _Settings(Protocol):
    """Settings of all topics."""

    @property
    def dispatch(self) -> DispatchSettings: ...
    @property
    def override_filters(self) -> bool: ...
    @property
    def find_filters(self) -> FindFilters: ...


def dispatch_settings(topic: str, settings: _Settings, policies: EffectivePolicies) -> DispatchSettings:
    """:param topic: the full name, for the log"""
    return replace(
        settings.dispatch,
        max_unacked_per_consumer=policies.max_unacked_per_consumer,
        max_unacked_per_subscription=policies.max_unacked_per_subscription,
        pause_on_ack_state=policies.pause_on_ack_state,
        filters=_filters(topic, settings, policies.entry_filters),
        delays=replace(
            settings.dispatch.delays,
            active=policies.delayed_delivery.active,
            tick_ms=policies.delayed_delivery.tick_ms,
        ),
    )


def _filters(topic: str, settings: _Settings, names: Sequence[str]) -> Sequence[EntryFilter]:
    if not names or not settings.override_filters:
        return settings.dispatch.filters
    try:
        return settings.find_filters(names)
    except UnknownFilter as error:
        # The filter existed when the policy was set.
        log.error(
            "cannot use the entry filters of the topic; using those of the broker",
            extra={"topic": topic, "error": str(error)},
        )
        return settings.dispatch.filters
