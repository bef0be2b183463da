"""Placement without load figures: a bundle goes to the broker with the fewest bundles."""

from __future__ import annotations

from magnetar.broker.ownership.brokers import LiveBrokers
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.ownership.destinations import Destinations
from magnetar.io.interfaces import Clock


class FewestBundles:
    """See :class:`magnetar.broker.ownership.contract.Placement`.

    The placement counts the bundles that it has given out since it started, so that a burst of lookups
    spreads over the brokers without reads. A new leader starts from zero.
    """

    def __init__(self, clock: Clock, brokers: LiveBrokers) -> None:
        self._brokers = brokers
        self._given: dict[str, int] = {}
        self._destinations = Destinations(clock, brokers)

    def wants(self, bundle: Bundle, persistent: bool) -> None:
        return

    def prefer(self, bundle: Bundle, broker_id: str) -> None:
        self._destinations.prefer(bundle, broker_id)

    def arrived(self, bundle: Bundle) -> None:
        self._destinations.forget(bundle)

    async def choose(self, bundle: Bundle, exclude: frozenset[str] = frozenset()) -> str | None:
        live = self._brokers.all
        known = self._destinations.of(bundle, exclude)
        if known is not None:
            return known
        self._given = {name: self._given.get(name, 0) for name in live}
        candidates = [name for name in live if name not in exclude] or list(live)
        if not candidates:
            return None
        chosen = min(candidates, key=lambda name: (self._given[name], name))
        self._given[chosen] += 1
        self._destinations.chosen(bundle, chosen)
        return chosen
