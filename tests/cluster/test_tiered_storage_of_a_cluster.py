"""Ledgers of BookKeeper in tiered storage: offloaded by one broker, read by the next owner of the topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import BrokerProcess
from offloaded_topics import admin, check_read, ledgers, publish, wait_until
from running import running

TOPIC = "persistent://public/default/archived"
SETTINGS: dict[str, int | str] = {
    "managedLedgerMaxEntriesPerLedger": 50,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "managedLedgerOffloadDriver": "filesystem",
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0,
    "managedLedgerOffloadDeletionLagMs": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "brokerDeleteInactiveTopicsEnabled": "false",
}


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    shared = {"fileSystemURI": f"file://{tmp_path}/tiered"}
    found = [
        BrokerProcess(tmp_path / f"broker{number}", without_brokers, **{**SETTINGS, **shared})
        for number in range(2)
    ]
    with running(found):
        yield found


def test_the_next_owner_of_a_topic_reads_what_the_former_one_offloaded(
    brokers: list[BrokerProcess], without_brokers: BookKeeperServers, tmp_path: Path
) -> None:
    first, second = brokers
    publish(first, TOPIC, 230, 1000)
    wait_until(first, TOPIC, 4)
    offloaded = [each["ledgerId"] for each in ledgers(first, TOPIC) if each["offloaded"]]
    while without_brokers.records(offloaded):
        time.sleep(0.1)
    check_read(first, TOPIC, 230, 1000)
    first.kill()
    publish(second, TOPIC, 120, 1000, 230)
    check_read(second, TOPIC, 350, 1000)
    # The current ledger of the former owner was closed by the present one.
    wait_until(second, TOPIC, 7)
    check_read(second, TOPIC, 350, 1000)
    admin(second, "topics", "delete", "-f", TOPIC)
    while list((tmp_path / "tiered").rglob("data")):
        time.sleep(0.1)
