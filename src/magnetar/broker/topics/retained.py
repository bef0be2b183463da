"""Converts a topic's retention policy to the settings of its managed ledger."""

from __future__ import annotations

from functools import lru_cache

from magnetar.broker.policies.values import Retention
from magnetar.managed_ledger.settings import RetentionSettings


@lru_cache(maxsize=1024)
def retention_settings(retention: Retention) -> RetentionSettings:
    """Returns the settings for a managed ledger; topics with the same policy share one object."""
    return RetentionSettings(
        retention.minutes * 60_000 if retention.minutes >= 0 else -1,
        retention.megabytes << 20 if retention.megabytes >= 0 else -1,
    )
