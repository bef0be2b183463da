"""What the settings of a broker mean for its client of BookKeeper."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.config.settings import load
from magnetar.server.cluster_settings import ledger_settings


@pytest.mark.parametrize("max_message_size", [5 << 20, 1 << 20, 64 << 20])
def test_requests_to_bookies_have_room_for_the_largest_message(tmp_path: Path, max_message_size: int) -> None:
    """As in Pulsar: ``nettyMaxFrameSizeBytes`` of the client is ``maxMessageSize`` and 10 KiB."""
    path = tmp_path / "broker.conf"
    path.write_text(f"maxMessageSize={max_message_size}", "utf-8")
    read = load(path, cluster=True)
    assert read.cluster is not None
    settings = ledger_settings(read.cluster, "/ledgers", read.settings.max_message_size)
    assert settings.bookies.bookie.max_frame_bytes == max_message_size + 10 * 1024
