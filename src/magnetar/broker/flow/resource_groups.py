"""Resource groups: namespaces that share limits of publishing and dispatching, and counts of the use of these
limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy
from magnetar.broker.flow.rate_limits import PublishLimiter
from magnetar.broker.policies.values import DispatchRate, GroupRates
from magnetar.io.interfaces import Clock
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass


class GroupDispatchLimiter(DispatchLimiter):
    """A dispatch limiter that counts messages and bytes even if there is no limit."""

    def __init__(self, wheel: TimerWheel, clock: Clock) -> None:
        super().__init__(wheel, clock, LimitedBy.GROUP, DispatchRate())
        self.messages_used = 0
        self.bytes_used = 0

    def take(self, messages: int, size: int) -> None:
        super().take(messages, size)
        self.messages_used += messages
        self.bytes_used += size


class GroupPublishLimiter(PublishLimiter):
    """A publish limiter that counts messages and bytes even if there is no limit."""

    messages_used = 0
    bytes_used = 0

    def take(self, messages: int, size: int, now: float) -> float:
        self.messages_used += messages
        self.bytes_used += size
        return super().take(messages, size, now)


class ResourceGroup:
    """The limits of one group in this broker, and their use by the group's topics."""

    def __init__(self, name: str, wheel: TimerWheel, clock: Clock) -> None:
        self.name = name
        self._clock = clock
        self.rates = GroupRates()
        self.publish = GroupPublishLimiter(0, 0, clock.monotonic())
        self.dispatch = GroupDispatchLimiter(wheel, clock)
        self.updates = 0

    def use(self, rates: GroupRates) -> None:
        """Changes the limits."""
        if rates == self.rates:
            return
        self.rates = rates
        self.updates += 1
        self.publish.use(rates.publish_messages, rates.publish_size, self._clock.monotonic())
        self.dispatch.use(DispatchRate(rates.dispatch_messages, rates.dispatch_size))


class ResourceGroups:
    """All groups that are defined, or named by a namespace. A group that is not defined has no limits."""

    def __init__(self, wheel: TimerWheel, clock: Clock) -> None:
        self._wheel = wheel
        self._clock = clock
        self._by_name: dict[str, ResourceGroup] = {}

    @property
    def known(self) -> Mapping[str, ResourceGroup]:
        return self._by_name

    def of(self, name: str) -> ResourceGroup:
        """Returns the group of that name; created without limits if it is not defined."""
        found = self._by_name.get(name)
        if found is None:
            found = self._by_name[name] = ResourceGroup(name, self._wheel, self._clock)
        return found

    def define(self, defined: Mapping[str, GroupRates]) -> None:
        """Replaces all definitions; groups without a definition no longer have limits."""
        for name, rates in defined.items():
            self.of(name).use(rates)
        for name, group in self._by_name.items():
            if name not in defined:
                group.use(GroupRates())


@dataclass(slots=True)
class RefusedByLimits:
    """Refusals because of topic limits since the start."""

    subscriptions: int = 0
    """The number of subscriptions that were refused because their topic already had the maximum number."""


@dataclass(frozen=True, slots=True)
class SharedLimits:
    """Limits shared by all topics of the broker, or of a group of namespaces."""

    dispatch: DispatchLimiter
    groups: ResourceGroups
    refused: RefusedByLimits = field(default_factory=RefusedByLimits)
