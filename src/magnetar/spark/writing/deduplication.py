"""Deduplication by the broker, which exactly-once writing requires."""

from __future__ import annotations

import time
from typing import Any

from magnetar.admin_client import AdminClient
from magnetar.admin_client.errors import AdminError
from magnetar.naming.topic_name import TopicName
from magnetar.spark.errors import DeduplicationIsOff

__all__ = ["last_entry", "switch_on"]

_WAIT_SECONDS = 30.0
_LOOK_AGAIN_SECONDS = 0.1


def switch_on(admin: AdminClient, topic: str, mode: str) -> bool:
    """Ensures that an open topic deduplicates; returns True if it did not before.

    :param mode: ``auto`` or ``require``
    :raises DeduplicationIsOff: deduplication is off, and must not or could not be enabled
    """
    if _is_on(admin, topic):
        return False
    name = TopicName.parse(topic).base
    command = f"pulsar-admin topicPolicies set-deduplication --enable {name}"
    if mode == "require":
        raise DeduplicationIsOff(f"{topic} does not deduplicate; run: {command}")
    try:
        admin.set_topic_deduplication(str(name), True)
    except AdminError as error:
        raise DeduplicationIsOff(
            f"{topic} does not deduplicate, and deduplication cannot be enabled for it ({error}); run: "
            f"{command}, or: pulsar-admin namespaces set-deduplication --enable {name.namespace_name}"
        ) from error
    end = time.monotonic() + _WAIT_SECONDS
    while not _is_on(admin, topic):
        if time.monotonic() > end:
            raise DeduplicationIsOff(
                f"{topic} still does not deduplicate {_WAIT_SECONDS:g} s after deduplication was enabled"
            )
        time.sleep(_LOOK_AGAIN_SECONDS)
    return True


def _is_on(admin: AdminClient, topic: str) -> bool:
    stats: dict[str, Any] = admin.topic_stats(topic)
    return stats.get("deduplicationStatus") == "Enabled"


def last_entry(internal_stats: dict[str, Any]) -> tuple[int, int]:
    """Returns (ledger id, entry id) of a topic's last entry; entry id -1 if its last ledger is empty."""
    ledger, _, entry = str(internal_stats["lastConfirmedEntry"]).partition(":")
    return int(ledger), int(entry)
