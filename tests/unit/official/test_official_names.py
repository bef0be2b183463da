"""Each public name of the official client is in ``magnetar.pulsar``, or there is a reason why not."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import official_names  # noqa: E402

OFFICIAL = official_names.names("pulsar")
OWN = official_names.names("magnetar.pulsar")


def test_no_name_is_missing_or_different_without_a_reason() -> None:
    assert len(OFFICIAL) > 500
    assert official_names.unexplained(OFFICIAL, OWN) == {}


def test_reasons_are_for_names_of_the_official_client() -> None:
    assert {*official_names.REASONS, *official_names.INTERNAL} - set(OFFICIAL) == set()


def test_the_table_of_the_documentation_is_up_to_date() -> None:
    assert official_names.recorded() == official_names.table(OFFICIAL), "run tools/official_names.py --record"


def test_a_missing_name_and_another_default_are_found() -> None:
    changed = dict(OWN)
    del changed["Consumer.pause_message_listener"]
    changed["Client.subscribe.receiver_queue_size"] = "5"
    assert official_names.unexplained(OFFICIAL, changed) == {
        "Client.subscribe.receiver_queue_size": "5 instead of 1000",
        "Consumer.pause_message_listener": "missing",
    }
