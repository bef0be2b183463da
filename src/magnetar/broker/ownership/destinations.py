"""Where bundles that nobody serves are to go: what the broker that leads remembers of it."""

from __future__ import annotations

from collections.abc import Collection

from magnetar.broker.ownership.brokers import LiveBrokers
from magnetar.broker.ownership.contract import Bundle
from magnetar.io.interfaces import Clock

_PREFERRED_SECONDS = 60.0
"""As long as it may take to unload a bundle, and the first of its clients to come back."""
_CHOSEN_SECONDS = 10.0
"""For so long who asks for a bundle again hears the same: it is being loaded there."""
_MOST = 100_000


class Destinations:
    """The latest word counts, whether somebody wanted it or it was chosen, until the bundle has an owner."""

    def __init__(self, clock: Clock, brokers: LiveBrokers) -> None:
        self._clock = clock
        self._brokers = brokers
        self._known: dict[Bundle, tuple[str, float]] = {}
        """The broker, and until when that counts."""

    def prefer(self, bundle: Bundle, broker_id: str) -> None:
        """It is to go to that broker, as soon as it is given up and somebody asks for it."""
        self._remember(bundle, broker_id, _PREFERRED_SECONDS)

    def chosen(self, bundle: Bundle, broker_id: str) -> None:
        """Somebody was sent to that broker."""
        self._remember(bundle, broker_id, _CHOSEN_SECONDS)

    def of(self, bundle: Bundle, exclude: Collection[str] = ()) -> str | None:
        """The id of a live broker; None: nothing is known.

        :param exclude: ids of brokers that are no answer
        """
        broker_id, until = self._known.get(bundle, ("", 0.0))
        if not broker_id:
            return None
        if self._clock.monotonic() >= until or self._brokers.get(broker_id) is None:
            del self._known[bundle]
            return None
        return None if broker_id in exclude else broker_id

    def forget(self, bundle: Bundle) -> None:
        """Somebody has it, or nobody wants it anywhere any more."""
        self._known.pop(bundle, None)

    def forget_all(self) -> None:
        self._known.clear()

    def _remember(self, bundle: Bundle, broker_id: str, seconds: float) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[bundle] = broker_id, self._clock.monotonic() + seconds
