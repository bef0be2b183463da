"""Two brokers beside each other: what one keeps the other has, and the page of each tells of both."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from chromium import chromium
from cluster_broker import BrokerProcess
from cluster_requests import asked
from dashboard_page import Page
from kazoo.client import KazooClient
from polling import until_wanted
from proxy_process import ProxyProcess
from running import running

from magnetar.cli.pulsar_admin import main

_MIB = 1 << 20
_PARTITIONS = 8
"""Of a topic at most, as the brokers' files say."""
_NAME = "function://public/default/words@1"
_REPORTS: dict[str, int | str] = {
    "statsUpdateFrequencyInSecs": 1,
    "loadBalancerReportUpdateMinIntervalMillis": 500,
}


@pytest.fixture
def brokers(without_brokers: BookKeeperServers, tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    packages: dict[str, int | str] = {"enablePackagesManagement": "true", "packagesReplicas": 2}
    settings = _REPORTS | packages | {"maxNumPartitionsPerPartitionedTopic": _PARTITIONS}
    found = [BrokerProcess(tmp_path / f"broker{number}", without_brokers, **settings) for number in range(2)]
    with running(found):
        yield found


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


def _given(broker: BrokerProcess, method: str, path: str, body: object = None) -> tuple[int, Any, int]:
    """Status, what the answer holds, and how often one was sent on."""
    status, told, redirects = asked(method, broker.http_url + path, body)
    return status, json.loads(told) if told.startswith((b"{", b"[")) else told.decode(), redirects


def _sent_to(broker: BrokerProcess, method: str, path: str, body: object) -> str:
    """Where a broker sends whoever asks it."""
    connection = HTTPConnection(urlsplit(broker.http_url).netloc, timeout=60)
    connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 307
    return str(answer.headers["Location"])


def _names(told: Any, broker: BrokerProcess) -> bool:
    return isinstance(told, dict) and told.get("httpUrl") == broker.http_url


def _placed(brokers: list[BrokerProcess], topics: list[str]) -> tuple[int, int]:
    """Numbers of two topics, of which the first broker serves one, and the second one the other."""
    one, other = brokers
    lookups = [f"/lookup/v2/topic/persistent/public/default/{topic}" for topic in topics]
    bundles = [_given(one, "GET", f"{path}/bundle")[1] for path in lookups]
    far = next(number for number, bundle in enumerate(bundles) if bundle != bundles[0])
    for broker, number in ((one, 0), (other, far)):
        assert _given(one, "GET", lookups[number])[0] == 200
        towards = broker.http_url.removeprefix("http://")
        path = f"/admin/v2/namespaces/public/default/{bundles[number]}/unload?destinationBroker={towards}"
        assert _given(one, "PUT", path)[0] == 204
        # The first broker may name the previous owner for a moment.
        until_wanted(lambda: _given(one, "GET", lookups[number])[1], lambda told: _names(told, broker))  # noqa: B023
    return 0, far


def _check_answers_about_partitions(broker: BrokerProcess) -> None:
    """What a broker says about all eight partitions, some of which another broker serves."""
    root = "/admin/v2/persistent/public/default/parts"
    partitions = [f"persistent://public/default/parts-partition-{index}" for index in range(8)]

    def answer(path: str) -> Any:
        status, told, redirects = _given(broker, "GET", root + path)
        assert (status, redirects) == (200, 0), told
        return told

    assert answer("/subscriptions") == ["s"]
    assert answer("/subscription/s/properties") == {}
    assert answer("/subscription/s/replicatedSubscriptionStatus") == dict.fromkeys(partitions, False)
    stored = answer("/internal-info")["partitions"]
    assert sorted(stored) == partitions
    assert all(list(each["cursors"]) == ["s"] for each in stored.values())
    sizes = answer("/backlog")
    assert (sizes["totalMessages"], sizes["messageBacklog"]) == (48, 48)
    status, told, _ = _given(broker, "GET", f"{root}/subscription/none/properties")
    assert (status, told["reason"]) == (
        404,
        "Subscription none not found for topic persistent://public/default/parts",
    )


def test_requests_publish_to_partitions_wherever_they_are_served(brokers: list[BrokerProcess]) -> None:
    one, other = brokers
    created, _, _ = _given(one, "PUT", "/admin/v2/persistent/public/default/parts/partitions", 8)
    assert created == 204
    near, far = _placed(brokers, [f"parts-partition-{index}" for index in range(8)])
    form = {"messages": [{"payload": f"m{number}"} for number in range(16)]}
    path = "/topics/persistent/public/default/parts"
    status, told, redirects = _given(one, "POST", path, form)
    assert (status, redirects) == (200, 0), told
    results = told["messagePublishResults"]
    assert [each["errorCode"] for each in results] == [0] * 16
    # Two in each partition: without keys they go to each in turn.
    partitions = [int(each["messageId"].rpartition(":")[2]) for each in results]
    assert sorted(partitions) == sorted([*range(8), *range(8)])
    to_far, to_near = f"{path}/partitions/{far}", f"{path}/partitions/{near}"
    assert _sent_to(one, "POST", to_far, form).startswith(f"{other.http_url}{to_far}?")
    assert _given(one, "POST", to_far, form)[::2] == (200, 1)
    assert _given(one, "POST", to_near, form)[::2] == (200, 0)
    client = pulsar.Client(one.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    consumer = client.subscribe("parts", "s", initial_position=pulsar.InitialPosition.Earliest)
    payloads = [consumer.receive(30_000).data().decode() for _ in range(48)]
    client.close()
    assert sorted(payloads) == sorted([f"m{number}" for number in range(16)] * 3)
    for broker in brokers:
        _check_answers_about_partitions(broker)
    # What the other one has is given up there, and only without topics.
    _, bundle, _ = _given(
        one, "GET", f"/lookup/v2/topic/persistent/public/default/parts-partition-{far}/bundle"
    )
    of_other = f"/admin/v2/namespaces/public/default/{bundle}"
    assert _sent_to(one, "DELETE", of_other, None).startswith(f"{other.http_url}{of_other}?")
    status, told, redirects = _given(one, "DELETE", of_other)
    assert (status, redirects) == (409, 1)
    assert told == {"reason": "Cannot delete non empty bundle"}
    assert _given(one, "DELETE", f"{of_other}?force=true")[::2] == (204, 1)


class _Changing:
    """Settings that are changed at brokers while they run."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._numbers = itertools.count()

    def tried(self, broker: BrokerProcess, words: str) -> tuple[int, str]:
        """Exit code of a command about them, and what it tells."""
        self._capsys.readouterr()
        code = main(["--admin-url", broker.http_url, "brokers", *words.split()])
        captured = self._capsys.readouterr()
        return code, (captured.err if code else captured.out).strip()

    def changed(self, broker: BrokerProcess) -> dict[str, str]:
        _, told = self.tried(broker, "get-all-dynamic-config -o json")
        return dict(json.loads(told))

    def has_partitions(self, broker: BrokerProcess, count: int) -> bool:
        """Whether a broker makes a topic of so many."""
        path = f"/admin/v2/persistent/public/default/made-{next(self._numbers)}/partitions"
        status, told, _ = _given(broker, "PUT", path, count)
        assert status == 204 or "Number of partitions should be less than" in told["reason"], told
        return bool(status == 204)


def _shared(client: pulsar.Client, topic: str) -> bool:
    """Whether a topic takes a shared subscription."""
    try:
        client.subscribe(topic, "s", consumer_type=pulsar.ConsumerType.Shared).close()
    except pulsar.NotAllowedError:
        return False
    return True


def test_a_setting_changed_at_one_counts_at_both_until_it_is_deleted(
    brokers: list[BrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    """For what is asked of a broker and for a topic that is open there, whichever broker it was told to."""
    one, other = brokers
    changing = _Changing(capsys)
    partitions, types = "maxNumPartitionsPerPartitionedTopic", "subscriptionTypesEnabled"
    _given(one, "PUT", "/admin/v2/persistent/public/default/changed/partitions", 8)
    near, far = _placed(brokers, [f"changed-partition-{index}" for index in range(8)])
    client = pulsar.Client(one.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    topics = [f"changed-partition-{index}" for index in (near, far)]
    producers = [client.create_producer(topic) for topic in topics]
    assert changing.tried(one, f"update-dynamic-config --config {partitions} --value 3")[0] == 0
    assert changing.tried(other, f"update-dynamic-config --config {types} --value Exclusive,Failover")[0] == 0
    # Where it was told it counts once that was answered; elsewhere when the metadata has told of it.
    assert [changing.has_partitions(one, count) for count in (3, 4)] == [True, False]
    assert not _shared(client, topics[1])
    until_wanted(lambda: changing.has_partitions(other, 4), lambda made: not made)
    until_wanted(lambda: _shared(client, topics[0]), lambda taken: not taken)
    assert changing.has_partitions(other, 3)
    both = {partitions: "3", types: "Exclusive,Failover"}
    assert [changing.changed(broker) for broker in brokers] == [both, both]
    refused = {
        f"{partitions} --value many": f"{partitions}=many: must be a whole number",
        "loadManagerClassName --value x": "there is only one load manager",
        "brokerServicePort --value 1": "Can't update non-dynamic configuration",
    }
    for broker in brokers:
        for words, reason in refused.items():
            code, told = changing.tried(broker, f"update-dynamic-config --config {words}")
            assert (code, reason in told) == (1, True), told
        assert changing.changed(broker) == both
        assert [changing.has_partitions(broker, count) for count in (3, 4)] == [True, False]
    assert changing.tried(other, f"delete-dynamic-config --config {partitions}")[0] == 0
    assert changing.tried(one, f"delete-dynamic-config --config {types}")[0] == 0
    until_wanted(lambda: changing.has_partitions(one, 4), bool)
    until_wanted(lambda: _shared(client, topics[1]), bool)
    for broker, topic in zip(brokers, topics, strict=True):
        assert _shared(client, topic)
        assert [changing.has_partitions(broker, count) for count in (_PARTITIONS, _PARTITIONS + 1)] == [
            True,
            False,
        ]
        assert changing.changed(broker) == {}
    for producer in producers:
        producer.send(b"on the connection it has had all along")
    client.close()


def test_a_bundle_that_nobody_has_is_not_given_up(brokers: list[BrokerProcess]) -> None:
    namespace = "/admin/v2/namespaces/public/unasked"
    assert _given(brokers[0], "PUT", namespace, {"bundles": {"numBundles": 2}})[0] == 204
    bundle = "0x00000000_0x80000000"
    for broker in brokers:
        status, told, _ = _given(broker, "DELETE", f"{namespace}/{bundle}")
        assert status == 412
        assert told == {"reason": f"Failed to find ownership for ServiceUnit:public/unasked/{bundle}"}


def test_the_page_shows_what_both_carry_and_leads_to_the_other(brokers: list[BrokerProcess]) -> None:
    one, other = brokers
    with chromium(1280, 900) as browser:
        page = Page(browser, one.http_url)
        page.go("/")
        names = [broker.http_url.removeprefix("http://") for broker in brokers]
        page.sees("Brokers of the cluster", *names, "this broker", "leads", "CPU", "Bundles", " ago")
        page.element("[aria-label='Brokers of the cluster'] a").click()
        page.waiting.until(lambda _: browser.current_url.startswith(f"{other.http_url}/"))
        page.sees("Brokers of the cluster", *names)
        page.check_console()


def test_the_page_of_each_broker_and_of_topics_of_both_is_shown_through_a_proxy(
    brokers: list[BrokerProcess], cluster: BookKeeperServers, tmp_path: Path
) -> None:
    one, _other = brokers
    names = sorted(broker.http_url.removeprefix("http://") for broker in brokers)
    _given(one, "PUT", "/admin/v2/persistent/public/default/shown/partitions", _PARTITIONS)
    both = _placed(brokers, [f"shown-partition-{index}" for index in range(_PARTITIONS)])
    proxy = ProxyProcess(tmp_path / "proxy", metadataStoreUrl=f"zk:{cluster.zookeeper.address}")
    try:
        proxy.start()
        with chromium(1280, 900) as browser:
            page = Page(browser, proxy.http_url)
            page.go("/")
            table = "[aria-label='Brokers of the cluster']"
            for here, there in (names, names[::-1]):
                page.sees("Brokers of the cluster", here, there, "this broker", "live")
                row = page.element(f"{table} tr[data-key='{here}']")
                assert "this broker" in row.text
                page.element(f"{table} tr[data-key='{there}'] a").click()
                page.waiting.until(lambda _, there=there: there.replace(":", "%3A") in browser.current_url)
                assert browser.current_url.startswith(f"{proxy.http_url}/?broker=")
            for number in both:
                page.go(f"/topic/persistent/public/default/shown-partition-{number}")
                page.sees("0 subscriptions", "Permissions", "live")
            page.check_console()
    finally:
        proxy.close()
