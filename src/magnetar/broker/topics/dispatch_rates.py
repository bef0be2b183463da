"""The dispatch rate limiters of one topic, and those that apply to each of its subscriptions."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy, Published, Throttle
from magnetar.broker.flow.resource_groups import ResourceGroup, SharedLimits
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import DispatchRate
from magnetar.io.interfaces import Clock
from magnetar.io.wheel import TimerWheel


class TopicDispatchRates:
    """Made once for a topic; limiters are made when a rate is first limited, and stay."""

    def __init__(
        self, wheel: TimerWheel, clock: Clock, published: Published, shared: SharedLimits | None
    ) -> None:
        """:param shared: limits that are shared with other topics; None: there are none"""
        self._wheel = wheel
        self._clock = clock
        self._published = published
        self._shared = shared
        self._topic: DispatchLimiter | None = None
        self._own: dict[str, DispatchLimiter] = {}
        self._policies = EffectivePolicies()
        self._group: ResourceGroup | None = None

    def use(self, policies: EffectivePolicies, group: ResourceGroup | None) -> None:
        """Applies policies."""
        self._policies = policies
        self._group = group
        self._topic = self._fitted(self._topic, LimitedBy.TOPIC, policies.dispatch_rate)

    def _fitted(
        self, limiter: DispatchLimiter | None, kind: LimitedBy, rate: DispatchRate
    ) -> DispatchLimiter | None:
        if limiter is not None:
            limiter.use(rate)
        elif rate.limited:
            limiter = DispatchLimiter(self._wheel, self._clock, kind, rate, self._published)
        return limiter

    def throttle(self, name: str, known: Throttle | None, make: Callable[[], Throttle]) -> Throttle | None:
        """Returns the throttle of the subscription with that name; None: its rate is not limited.

        :param known: its previous throttle
        :param make: makes a throttle without limiters
        """
        policies = self._policies
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
        throttle = known or make()
        throttle.use(limiters)
        return throttle

    def forget(self, name: str) -> None:
        """Drops the limiters of a subscription that has ended."""
        self._own.pop(name, None)

    def check(self) -> None:
        """:raises BrokenInvariant: something waits that will never be woken"""
        for limiter in (self._topic, *self._own.values()):
            if limiter is not None:
                limiter.check()
