"""The durable subscription of a streaming query: it keeps what is unread from being trimmed.

It stays one entry behind what has been read. So the ledger in which a query goes on is always there, also
when the query has read all of it; one that is not there means that messages may be lost.
"""

from __future__ import annotations

import logging

from magnetar.admin_client import AdminClient, Conflict, NotFound
from magnetar.spark.positions import Place

__all__ = ["hold", "move"]

log = logging.getLogger(__name__)


def hold(admin: AdminClient, topic: str, name: str, place: Place) -> None:
    """Makes the subscription, so that everything from ``place`` on is kept.

    :raises AdminError: the broker refused
    """
    ledger, entry = _kept(place)
    try:
        admin.create_subscription(topic, name, ledger, entry)
    except Conflict:
        # Made meanwhile, by an earlier run of this query that was slow to end: it holds all that it needs.
        log.info("%s: subscription %s already exists", topic, name)
    except NotFound as error:
        # Whoever reads it now finds out.
        log.warning("%s: cannot create subscription %s: %s", topic, name, error)


def move(admin: AdminClient, topic: str, name: str, place: Place) -> None:
    """Lets go of what lies before ``place``.

    :raises AdminError: the broker refused
    """
    ledger, entry = _kept(place)
    try:
        admin.reset_subscription(topic, name, ledger, entry)
    except NotFound as error:
        # The next look at the topic finds out whether anything was lost, and makes it again.
        log.warning("%s: cannot move subscription %s: %s", topic, name, error)


def _kept(place: Place) -> tuple[int, int]:
    if place.batch_index or not place.entry:
        return place.ledger, place.entry
    return place.ledger, place.entry - 1
