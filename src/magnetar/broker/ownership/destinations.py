"""Where bundles without an owner shall go, as the leader remembers it."""

from __future__ import annotations

from collections.abc import Collection

from magnetar.broker.ownership.brokers import LiveBrokers
from magnetar.broker.ownership.contract import Bundle
from magnetar.io.interfaces import Clock

_PREFERRED_SECONDS = 60.0
"""The time that an unload and the return of the first client may take."""
_CHOSEN_SECONDS = 10.0
"""Lookups get the same answer for this long, because the bundle is being loaded there."""
_MOST = 100_000


class Destinations:
    """The most recent destination counts, requested or chosen, until the bundle has an owner."""

    def __init__(self, clock: Clock, brokers: LiveBrokers) -> None:
        self._clock = clock
        self._brokers = brokers
        self._known: dict[Bundle, tuple[str, float]] = {}
        """The broker, and until when it is the destination."""

    def prefer(self, bundle: Bundle, broker_id: str) -> None:
        """Makes that broker the destination for the time after the bundle is given up."""
        self._remember(bundle, broker_id, _PREFERRED_SECONDS)

    def chosen(self, bundle: Bundle, broker_id: str) -> None:
        """Remembers that a lookup was sent to that broker."""
        self._remember(bundle, broker_id, _CHOSEN_SECONDS)

    def of(self, bundle: Bundle, exclude: Collection[str] = ()) -> str | None:
        """Returns the id of a live broker, or None if no destination is known.

        :param exclude: ids of brokers that are not acceptable
        """
        broker_id, until = self._known.get(bundle, ("", 0.0))
        if not broker_id:
            return None
        if self._clock.monotonic() >= until or self._brokers.get(broker_id) is None:
            del self._known[bundle]
            return None
        return None if broker_id in exclude else broker_id

    def forget(self, bundle: Bundle) -> None:
        """Drops the destination: the bundle has an owner, or the request for a destination is void."""
        self._known.pop(bundle, None)

    def forget_all(self) -> None:
        self._known.clear()

    def _remember(self, bundle: Bundle, broker_id: str, seconds: float) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[bundle] = broker_id, self._clock.monotonic() + seconds
