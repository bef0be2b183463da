"""Ledgers that one kind of broker offloads, and the other one reads and deletes: in a folder, in a bucket."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from apache_broker import ApacheBroker
from apache_offloader import (
    FILES,
    OBJECTS,
    bucket_settings,
    credentials,
    file_system_settings,
    offloaders,
)
from bookkeeper_servers import CLUSTER, BookKeeperServers
from bucket import new_bucket
from cluster_broker import BrokerProcess
from cluster_requests import Broker, asked, http_of
from offloaded_topics import admin, check_read, ledgers, publish

SIZE = 1000
_PATIENCE = 90.0


@dataclass(frozen=True)
class Tiered:
    """Tiered storage that both kinds of brokers use."""

    archive: str
    """The archive with Apache's driver."""
    ours: Mapping[str, int | str]
    """The settings of our broker."""
    theirs: Mapping[str, int | str]
    stored: Callable[[], Collection[object]]
    """Returns all data of ledgers that are there."""


@pytest.fixture(params=["a folder", "a bucket"])
def tiered(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Tiered]:
    if request.param == "a folder":
        settings = file_system_settings(tmp_path, tmp_path / "tiered")
        yield Tiered(FILES, settings, settings, lambda: list((tmp_path / "tiered").rglob("data")))
        return
    for name, value in credentials().items():
        monkeypatch.setenv(name, value)
    with new_bucket() as bucket:
        yield Tiered(OBJECTS, bucket.settings, bucket_settings(bucket), lambda: bucket.names)


class Pair:
    """A broker of each kind, with the same tiered storage."""

    def __init__(self, folder: Path, servers: BookKeeperServers, tiered: Tiered) -> None:
        self.servers = servers
        self.namespace = f"public/{tiered.archive}"
        settings = {
            "managedLedgerMaxEntriesPerLedger": 50,
            "managedLedgerMinLedgerRolloverTimeMinutes": 0,
            "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0,
            "managedLedgerOffloadDeletionLagMs": 0,
            "defaultRetentionTimeInMinutes": -1,
            "defaultRetentionSizeInMB": -1,
            "brokerDeleteInactiveTopicsEnabled": "false",
        }
        self.ours = BrokerProcess(folder / "ours", servers, **settings, **tiered.ours)
        archive = {
            "offloadersDirectory": offloaders(tiered.archive),
            "narExtractionDirectory": folder / "extracted",
        }
        self.apache = ApacheBroker(folder / "apache", servers, **settings, **tiered.theirs, **archive)

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
                path = f"namespaces/{self.namespace}/0x00000000_0xffffffff/unload"
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


@pytest.fixture
def pair(without_brokers: BookKeeperServers, tmp_path: Path, tiered: Tiered) -> Iterator[Pair]:
    pair = Pair(tmp_path, without_brokers, tiered)
    try:
        pair.apache.launch()
        pair.ours.start()
        pair.apache.wait()
        live = f"brokers/{CLUSTER}"
        while len(json.loads(pair.ask("GET", live))) < 2:
            time.sleep(0.1)
        pair.ask("PUT", f"namespaces/{pair.namespace}", {"bundles": {"numBundles": 1}})
        yield pair
    finally:
        pair.ours.close()
        pair.apache.close()


def scanned(broker: Broker, namespace: str) -> dict[str, dict[str, object]]:
    """What a broker says of the objects in the bucket, by name."""
    path = f"/admin/v2/namespaces/{namespace}/scanOffloadedLedgers"
    status, answer, _ = asked("GET", f"{http_of(broker)}{path}")
    assert status == 200, answer
    # The answer of Apache's broker as a whole is not JSON.
    found = [json.loads(each) for each in re.findall(r"{[^{}]*{[^{}]*}[^{}]*}", answer.decode())]
    return {each["name"]: each for each in found}


def test_each_kind_of_broker_reads_and_deletes_what_the_other_one_offloaded(
    pair: Pair, tiered: Tiered
) -> None:
    topic = f"persistent://{pair.namespace}/archived"
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
    if tiered.archive == OBJECTS:
        found = [scanned(broker, pair.namespace) for broker in (pair.ours, pair.apache)]
        assert found[0] == found[1]
        assert set(found[0]) == set(tiered.stored())
        assert {each["status"] for each in found[0].values()} == {"OK"}
    # What our broker offloaded is deleted by Apache's, and the other way round.
    kept = f"persistent://{pair.namespace}/kept"
    publish(pair.apache, kept, 120, SIZE)
    pair.wait_until_only_tiered(pair.apache, kept, 2)
    admin(pair.apache, "topics", "delete", "-f", topic)
    pair.move(kept, pair.ours)
    check_read(pair.ours, kept, 120, SIZE)
    admin(pair.ours, "topics", "delete", "-f", kept)
    deadline = time.monotonic() + _PATIENCE
    while stored := tiered.stored():
        assert time.monotonic() < deadline, stored
        time.sleep(0.1)
