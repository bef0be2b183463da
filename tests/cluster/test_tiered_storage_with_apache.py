"""Ledgers that one kind of broker offloads to a file system, and the other kind reads and deletes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_broker import ApacheBroker
from apache_offloader import file_system_settings, offloaders
from bookkeeper_servers import CLUSTER, BookKeeperServers
from cluster_broker import BrokerProcess
from cluster_requests import Broker, asked, http_of
from offloaded_topics import admin, check_read, ledgers, publish

NAMESPACE = "public/interchange"
SIZE = 1000
_PATIENCE = 90.0


class Pair:
    """A broker of each kind, with one folder for tiered storage."""

    def __init__(self, folder: Path, servers: BookKeeperServers) -> None:
        self.servers = servers
        self.tiered = folder / "tiered"
        settings = {
            **file_system_settings(folder, self.tiered),
            "managedLedgerMaxEntriesPerLedger": 50,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0,
            "managedLedgerOffloadDeletionLagMs": 0,
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
            "brokerDeleteInactiveTopicsEnabled": "false",
        }
        self.ours = BrokerProcess(folder / "ours", servers, **settings)
        extracted = folder / "extracted"
        archive = {"offloadersDirectory": offloaders(), "narExtractionDirectory": extracted}
        self.apache = ApacheBroker(folder / "apache", servers, **settings, **archive)

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        status, answer, _ = asked(method, f"{http_of(self.ours)}/admin/v2/{path}", body)
        assert status < 300, (path, status, answer)
        return answer

    def move(self, topic: str, target: Broker) -> None:
        """Moves the only bundle of the namespace to a broker."""
        lookup = f"{http_of(self.ours)}/lookup/v2/topic/{topic.replace('://', '/')}"
        deadline = time.monotonic() + _PATIENCE
        while True:
            status, answer, _ = asked("GET", lookup)
            if status == 200 and json.loads(answer)["brokerUrl"] == target.url:
                return
            assert time.monotonic() < deadline, (status, answer)
            if status == 200:
                destination = http_of(target).removeprefix("http://")
                path = f"namespaces/{NAMESPACE}/0x00000000_0xffffffff/unload"
                self.ask("PUT", f"{path}?destinationBroker={destination}")
            time.sleep(0.2)

    def wait_until_only_tiered(self, broker: Broker, topic: str, wanted: int) -> None:
        """Waits until this number of ledgers is offloaded and no bookie has them any more."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            offloaded = [each["ledgerId"] for each in ledgers(broker, topic) if each["offloaded"]]
            if len(offloaded) >= wanted and not self.servers.records(offloaded):
                return
            assert time.monotonic() < deadline, ledgers(broker, topic)
            # Apache's broker deletes local copies only when it trims.
            self.ask("POST", f"{topic.replace('://', '/')}/trim")
            time.sleep(0.2)

    def files(self) -> int:
        return len(list(self.tiered.rglob("data")))


@pytest.fixture
def pair(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path, without_brokers)
    try:
        pair.apache.launch()
        pair.ours.start()
        pair.apache.wait()
        live = f"brokers/{CLUSTER}"
        while len(json.loads(pair.ask("GET", live))) < 2:
            time.sleep(0.1)
        pair.ask("PUT", f"namespaces/{NAMESPACE}", {"bundles": {"numBundles": 1}})
        yield pair
    finally:
        pair.ours.close()
        pair.apache.close()


def test_each_kind_of_broker_reads_and_deletes_what_the_other_one_offloaded(pair: Pair) -> None:
    topic = f"persistent://{NAMESPACE}/archived"
    pair.move(topic, pair.apache)
    publish(pair.apache, topic, 230, SIZE)
    pair.wait_until_only_tiered(pair.apache, topic, 4)
    pair.move(topic, pair.ours)
    check_read(pair.ours, topic, 230, SIZE)
    publish(pair.ours, topic, 120, SIZE, 230)
    # The ledger that Apache's broker wrote last was closed when the topic moved.
    pair.wait_until_only_tiered(pair.ours, topic, 7)
    check_read(pair.ours, topic, 350, SIZE)
    pair.move(topic, pair.apache)
    check_read(pair.apache, topic, 350, SIZE)
    # What our broker offloaded is deleted by Apache's, and the other way round.
    kept = f"persistent://{NAMESPACE}/kept"
    publish(pair.apache, kept, 120, SIZE)
    pair.wait_until_only_tiered(pair.apache, kept, 2)
    admin(pair.apache, "topics", "delete", "-f", topic)
    pair.move(kept, pair.ours)
    check_read(pair.ours, kept, 120, SIZE)
    admin(pair.ours, "topics", "delete", "-f", kept)
    deadline = time.monotonic() + _PATIENCE
    while pair.files():
        assert time.monotonic() < deadline, list(pair.tiered.rglob("data"))
        time.sleep(0.1)
