"""The effects of a topic's policies: dispatching and its rates, retention, limits of producers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.filters import EntryFilter, UnknownFilter
from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy, Published, Throttle
from magnetar.broker.flow.rate_limits import PublishLimiter, publish_limiter
from magnetar.broker.flow.rates import Rate
from magnetar.broker.flow.resource_groups import ResourceGroup, SharedLimits
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.offload import offload_policy
from magnetar.broker.policies.values import DispatchRate, Retention
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.io.interfaces import Clock
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.cursors import Cursors
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.settings import RetentionSettings

if TYPE_CHECKING:
    from magnetar.broker.topics.base import TopicSettings


log = logging.getLogger(__name__)


def dispatch_settings(topic: str, settings: TopicSettings, policies: EffectivePolicies) -> DispatchSettings:
    """Returns the dispatch settings of a topic, derived from the broker's settings and the topic's policies.

    :param topic: the full name, for the log
    """
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


def _filters(topic: str, settings: TopicSettings, names: Sequence[str]) -> Sequence[EntryFilter]:
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


class TopicDispatchRates:
    """The dispatch rate limiters of one topic and of its subscriptions.

    A limiter is created when a rate is first limited, and then kept.
    """

    def __init__(
        self,
        wheel: TimerWheel,
        clock: Clock,
        rate_in: Rate,
        cursors: Cursors,
        shared: SharedLimits | None,
    ) -> None:
        """:param rate_in: the rate at which messages are published to the topic

        :param cursors: the cursors of the topic
        :param shared: limits that are shared with other topics; None: there are no shared limits
        """
        self._wheel = wheel
        self._clock = clock
        self._published: Published = lambda: (rate_in.messages, rate_in.bytes)
        self._cursors = cursors
        self._shared = shared
        self._topic: DispatchLimiter | None = None
        self._own: dict[str, DispatchLimiter] = {}
        self._policies = EffectivePolicies()
        self._group: ResourceGroup | None = None
        self._settings = DispatchSettings()

    def use(
        self, policies: EffectivePolicies, group: ResourceGroup | None, settings: DispatchSettings
    ) -> None:
        """Applies policies, and the settings that follow from them.

        :param group: the resource group whose limits the topic shares; None: no group
        """
        self._policies = policies
        self._group = group
        self._settings = settings
        self._topic = self._fitted(self._topic, LimitedBy.TOPIC, policies.dispatch_rate)

    def _fitted(
        self, limiter: DispatchLimiter | None, kind: LimitedBy, rate: DispatchRate
    ) -> DispatchLimiter | None:
        if limiter is not None:
            limiter.use(rate)
        elif rate.limited:
            limiter = DispatchLimiter(self._wheel, self._clock, kind, rate, self._published)
        return limiter

    def throttle(self, subscription: Subscription, known: Throttle | None) -> Throttle | None:
        """Returns the throttle of a subscription; None: its rate is not limited.

        :param known: the subscription's previous throttle; None: its rate was not limited
        """
        policies, name = self._policies, subscription.name
        rate = policies.subscription_dispatch_rates.get(name, policies.subscription_dispatch_rate)
        own = self._fitted(self._own.get(name), LimitedBy.SUBSCRIPTION, rate)
        if own is not None:
            self._own[name] = own
        limiters = [each for each in (own, self._topic) if each is not None and each.limited]
        if self._group is not None:
            limiters.append(self._group.dispatch)
        if self._shared is not None and self._shared.dispatch.limited:
            limiters.append(self._shared.dispatch)
        if not limiters:
            if known is not None:
                known.use(())
            return None
        cursors = self._cursors
        throttle = known or Throttle(
            self._clock,
            subscription.read_more,
            lambda: cursors.is_near_end(subscription.cursor),
            subscription.fail,
        )
        throttle.use(limiters)
        throttle.count_messages = self._settings.throttle_by_message
        throttle.bound_if_caught_up = self._settings.throttle_caught_up
        return throttle

    def forget(self, name: str) -> None:
        """Drops the limiters of a subscription that has ended."""
        self._own.pop(name, None)

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: a subscription waits and nothing will wake it
        """
        for limiter in (self._topic, *self._own.values()):
            if limiter is not None:
                limiter.check()


def resource_group(policies: EffectivePolicies, shared: SharedLimits | None) -> ResourceGroup | None:
    """Returns the resource group whose limits a topic shares; None: the topic is in no resource group."""
    name = policies.resource_group
    return shared.groups.of(name) if name and shared is not None else None


def topic_publish_limiter(policies: EffectivePolicies, now: float) -> PublishLimiter | None:
    """Returns a limiter of a topic's publish rate; None: the rate is not limited.

    :param now: the present time, in seconds of the monotonic clock
    """
    rate = policies.publish_rate
    return publish_limiter(rate.messages, rate.size, now)


def use_persistence(managed_ledger: ManagedLedger, policies: EffectivePolicies) -> None:
    """Applies the policies of persistence and of tiered storage to the managed ledger of a topic."""
    persistence = policies.persistence
    managed_ledger.use_quorums(policies.quorums)
    managed_ledger.cursors.use_rate(persistence.mark_delete_rate if persistence.own_rate else None)
    managed_ledger.use_offload(offload_policy(policies.offload, on_load=policies.offload_on_load))


@lru_cache(maxsize=1024)
def retention_settings(retention: Retention) -> RetentionSettings:
    """Converts a topic's retention policy to the settings of its managed ledger.

    Topics with the same policy share one object.
    """
    return RetentionSettings(
        retention.minutes * 60_000 if retention.minutes >= 0 else -1,
        retention.megabytes << 20 if retention.megabytes >= 0 else -1,
    )
