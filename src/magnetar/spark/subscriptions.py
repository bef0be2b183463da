"""The durable subscription of a streaming query, which keeps unread messages from being trimmed.

It stays one entry before the read position. So the ledger at which a query continues always exists, even if
the query has read all of it; a missing ledger means that messages may be lost.
"""

from __future__ import annotations

import logging

from magnetar.admin_client import AdminClient, Conflict, NotFound
from magnetar.spark.positions import Place

__all__ = ["hold", "move"]

log = logging.getLogger(__name__)


def hold(admin: AdminClient, topic: str, name: str, place: Place) -> None:
    """Creates the subscription, so that everything from ``place`` is retained.

    :raises AdminError: the broker refused
    """
    ledger, entry = _kept(place)
    try:
        admin.create_subscription(topic, name, ledger, entry)
    except Conflict:
        # Created by an earlier run of this query that ended late: it retains everything that is needed.
        log.info("%s: subscription %s already exists", topic, name)
    except NotFound as error:
        # The next read reports the missing topic.
        log.warning("%s: cannot create subscription %s: %s", topic, name, error)


def move(admin: AdminClient, topic: str, name: str, place: Place) -> None:
    """Releases messages before ``place``.

    :raises AdminError: the broker refused
    """
    ledger, entry = _kept(place)
    try:
        admin.reset_subscription(topic, name, ledger, entry)
    except NotFound as error:
        # The next check of the topic finds out whether anything was lost, and creates it again.
        log.warning("%s: cannot move subscription %s: %s", topic, name, error)


def _kept(place: Place) -> tuple[int, int]:
    if place.batch_index or not place.entry:
        return place.ledger, place.entry
    return place.ledger, place.entry - 1
