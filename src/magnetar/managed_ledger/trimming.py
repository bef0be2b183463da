"""Which ledgers of a managed ledger may go.

Rules: https://pulsar.apache.org/docs/4.0.x/cookbooks-retention-expiry/. A ledger goes when every durable
cursor is past it and retention lets it: its time is exceeded, or the retained size without it still reaches
the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.managed_ledger.records import LedgerSummary
from magnetar.managed_ledger.settings import RetentionSettings


def ledgers_to_trim(
    consumed: Sequence[LedgerSummary], total_size: int, retention: RetentionSettings, now_ms: int
) -> list[LedgerSummary]:
    """The oldest of ``consumed`` (closed ledgers no cursor needs, oldest first) that retention does not keep.

    :param total_size: bytes of all ledgers, the open one included
    """
    going: list[LedgerSummary] = []
    off = retention.time_ms == 0 or retention.size_bytes == 0
    for summary in consumed:
        too_old = 0 <= retention.time_ms < now_ms - summary.closed_ms
        too_much = 0 <= retention.size_bytes <= total_size - summary.size
        if not (off or too_old or too_much):
            break
        total_size -= summary.size
        going.append(summary)
    return going
