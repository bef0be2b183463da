"""Two brokers beside each other: what one keeps the other has, and the page of each tells of both."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from chromium import chromium
from cluster_broker import BrokerProcess
from dashboard_page import Page
from kazoo.client import KazooClient

from magnetar.cli.pulsar_admin import main

_MIB = 1 << 20
_NAME = "function://public/default/words@1"
_REPORTS: dict[str, int | str] = {
    "statsUpdateFrequencyInSecs": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 500,
}


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    packages: dict[str, int | str] = {"enablePackagesManagement": "true", "packagesReplicas": 2}
    settings = _REPORTS | packages
    found = [BrokerProcess(tmp_path / f"broker{number}", without_brokers, **settings) for number in range(2)]
    for broker in found:
        broker.start()
    yield found
    for broker in found:
        broker.close()


def _administer(broker: BrokerProcess, *words: str) -> None:
    assert main(["--admin-url", broker.http_url, *words]) == 0


def _package(servers: BookKeeperServers) -> dict[str, int]:
    """What the metadata has of :data:`_NAME`."""
    client = KazooClient(servers.zookeeper.address)
    client.start()
    try:
        value, _ = client.get("/magnetar/packages/function/public/default/words/1")
    finally:
        client.stop()
        client.close()
    return dict(json.loads(value))


def test_a_package_is_kept_on_bookies_and_goes_with_its_ledger(
    brokers: list[BrokerProcess],
    cluster: BookKeeperServers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one, other = brokers
    given, got = tmp_path / "given", tmp_path / "got"
    given.write_bytes(os.urandom(_MIB) * 5 + b"end")
    _administer(one, "packages", "upload", _NAME, "--description", "counts words", "--path", str(given))
    capsys.readouterr()
    _administer(other, "packages", "list", "public/default", "--type", "function")
    assert capsys.readouterr().out == "words\n"
    _administer(other, "packages", "download", _NAME, "--path", str(got))
    assert got.read_bytes() == given.read_bytes()
    ledger_id = _package(cluster)["ledger_id"]
    [record] = cluster.records([ledger_id]).values()
    assert record.length == given.stat().st_size
    assert len(record.ensemble_of(0)) == 2
    _administer(other, "packages", "delete", _NAME)
    assert cluster.records([ledger_id]) == {}
    assert main(["--admin-url", one.http_url, "packages", "download", _NAME, "--path", str(got)]) == 1


def test_the_page_shows_what_both_carry_and_leads_to_the_other(brokers: list[BrokerProcess]) -> None:
    one, other = brokers
    with chromium(1280, 900) as browser:
        page = Page(browser, one.http_url)
        page.go("/")
        names = [broker.http_url.removeprefix("http://") for broker in brokers]
        page.sees("Brokers of the cluster", *names, "this one", "leads", "CPU", "Bundles", " ago")
        page.element("[aria-label='Brokers of the cluster'] a").click()
        page.waiting.until(lambda _: browser.current_url.startswith(f"{other.http_url}/"))
        page.sees("Brokers of the cluster", *names)
        page.check_console()
