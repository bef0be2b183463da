"""``magnetar broker`` on Apache ZooKeeper and BookKeeper, with the official client."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from cluster_broker import SESSION_MS, BrokerProcess
from explained import PRODUCERS, administer, told
from kazoo.client import KazooClient
from polling import until
from ports import free_port

from magnetar.ledger.bookkeeper.ledger_record import ledger_path

_topics = count()
PATIENCE = 60.0


@pytest.fixture(scope="module")
def started(
    started_cluster: BookKeeperServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), started_cluster)
    yield process
    process.close()


@pytest.fixture
def broker(cluster: BookKeeperServers, started: BrokerProcess) -> BrokerProcess:
    """A broker that serves; started again where a test has ended it."""
    if not started.runs:
        started.start()
    return started


@pytest.fixture
def topic() -> str:
    return f"persistent://public/default/broker-{next(_topics)}"


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[pulsar.Client]:
    client = pulsar.Client(
        broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error), operation_timeout_seconds=60
    )
    yield client
    client.close()


def received(consumer: pulsar.Consumer, wanted: int) -> list[bytes]:
    found = []
    for _ in range(wanted):
        message = consumer.receive(timeout_millis=30_000)
        consumer.acknowledge(message)
        found.append(message.data())
    return found


def ask(broker: BrokerProcess, method: str, path: str, body: object = None) -> object:
    status, answer = broker.ask(method, f"/admin/v2/{path}", None if body is None else json.dumps(body))
    assert status < 300, (status, answer)
    return json.loads(answer) if answer else None


def test_what_is_published_is_consumed(client: pulsar.Client, topic: str) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    sent = [b"%d" % number for number in range(500)]
    for body in sent[:-1]:
        producer.send_async(body, None)
    producer.send(sent[-1])
    assert received(consumer, 500) == sent


@pytest.mark.parametrize("ended", ["kill", "stop"])
def test_all_that_was_acknowledged_is_there_after_a_restart(
    broker: BrokerProcess, client: pulsar.Client, topic: str, ended: str
) -> None:
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(topic)
    sent = [b"%d" % number for number in range(300)]
    for body in sent:
        producer.send(body)
    assert received(consumer, 100) == sent[:100]
    broker.restart(kill=ended == "kill")
    after = b"after"
    producer.send(after)
    found: list[bytes] = []
    while after not in found:
        found += received(consumer, 1)
    # Cursors are written, and acknowledgements sent, now and then: the last ones may come again.
    assert [body for body in found if body not in sent[:100]] == [*sent[100:], after]


def test_it_registers_as_brokers_of_apaches_do(broker: BrokerProcess, cluster: BookKeeperServers) -> None:
    with ZooKeeper(cluster) as zookeeper:
        [name] = zookeeper.get_children("/loadbalance/brokers")
        value, stat = zookeeper.get(f"/loadbalance/brokers/{name}")
    record = json.loads(value)
    assert stat.ephemeralOwner
    assert broker.http_url == f"http://{name}" == record["webServiceUrl"]
    assert record["pulsarServiceUrl"] == broker.url
    assert record["loadReportType"] == "LocalBrokerData"


def test_ledgers_have_the_copies_that_policies_ask_for(
    broker: BrokerProcess, cluster: BookKeeperServers, client: pulsar.Client, topic: str
) -> None:
    client.create_producer(topic).send(b"usual")
    namespace = "public/copies"
    ask(broker, "PUT", f"namespaces/{namespace}", {})
    policies = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 1}
    ask(
        broker,
        "POST",
        f"namespaces/{namespace}/persistence",
        policies | {"managedLedgerMaxMarkDeleteRate": 0},
    )
    client.create_producer(f"persistent://{namespace}/t").send(b"fewer")
    for path, copies in ((topic.removeprefix("persistent://"), (3, 3, 2)), (f"{namespace}/t", (2, 2, 1))):
        stored = ask(broker, "GET", f"persistent/{path}/internalStats?metadata=true")
        assert isinstance(stored, dict)
        ledger_id = stored["ledgers"][-1]["ledgerId"]
        told = cluster.shell("ledgermetadata", "-ledgerid", str(ledger_id))
        for name, wanted in zip(("ensembleSize", "writeQuorumSize", "ackQuorumSize"), copies, strict=True):
            assert f"{name}={wanted}" in told
        assert "pulsar/managed-ledger" in told


def test_ledgers_of_a_namespace_keep_to_its_group_of_bookies(
    broker: BrokerProcess, cluster: BookKeeperServers, client: pulsar.Client
) -> None:
    chosen, *others = (bookie.address for bookie in cluster.bookies)
    for address, group in ((chosen, "chosen"), *((other, "others") for other in others)):
        ask(broker, "POST", f"bookies/racks-info/{address}?group={group}", {"rack": "/r", "hostname": "h"})
    try:
        namespace = "public/grouped"
        ask(broker, "PUT", f"namespaces/{namespace}", {})
        copies = {"bookkeeperEnsemble": 1, "bookkeeperWriteQuorum": 1, "bookkeeperAckQuorum": 1}
        ask(
            broker,
            "POST",
            f"namespaces/{namespace}/persistence",
            copies | {"managedLedgerMaxMarkDeleteRate": 0},
        )
        path = f"namespaces/{namespace}/persistence/bookieAffinity"
        ask(broker, "POST", path, {"bookkeeperAffinityGroupPrimary": "chosen"})
        assert ask(broker, "GET", path) == {"bookkeeperAffinityGroupPrimary": "chosen"}
        for number in range(3):
            client.create_producer(f"persistent://{namespace}/t{number}").send(b"here")
            stored = ask(broker, "GET", f"persistent/{namespace}/t{number}/internalStats?metadata=true")
            assert isinstance(stored, dict)
            told = cluster.shell("ledgermetadata", "-ledgerid", str(stored["ledgers"][-1]["ledgerId"]))
            assert chosen in told
            assert not any(other in told for other in others)
    finally:
        for address in (chosen, *others):
            ask(broker, "DELETE", f"bookies/racks-info/{address}")


@pytest.mark.parametrize("lost", [1, 2], ids=["with a spare one", "until there are enough again"])
def test_bookies_that_are_killed_under_load_cost_nothing_that_was_acknowledged(
    broker: BrokerProcess, cluster: BookKeeperServers, client: pulsar.Client, lost: int
) -> None:
    namespace = f"public/lost{lost}"
    ask(broker, "PUT", f"namespaces/{namespace}", {})
    copies = {"bookkeeperEnsemble": 2, "bookkeeperWriteQuorum": 2, "bookkeeperAckQuorum": 2}
    ask(broker, "POST", f"namespaces/{namespace}/persistence", copies | {"managedLedgerMaxMarkDeleteRate": 0})
    topic = f"persistent://{namespace}/t"
    consumer = client.subscribe(topic, "s")
    producer = client.create_producer(
        topic, batching_enabled=False, send_timeout_millis=0, max_pending_messages=2000
    )
    sent = [b"%d" % number for number in range(2000)]
    for number, body in enumerate(sent):
        producer.send_async(body, None)
        if number == 500:
            for bookie in cluster.bookies[:lost]:
                bookie.kill()
    if lost > 1:
        told(broker, topic, "not_stored", PRODUCERS)
        for bookie in cluster.bookies[:lost]:
            bookie.start()
    producer.flush()
    found = received(consumer, len(sent))
    # What the client sent again after an error may be there twice; the first of each is in order.
    assert list(dict.fromkeys(found)) == [body for body in sent if body in set(found)]
    while set(found) != set(sent):
        found += received(consumer, 1)


def test_a_ledger_that_is_lost_holds_its_topic_up_until_settings_let_it_go(
    broker: BrokerProcess, cluster: BookKeeperServers, client: pulsar.Client, topic: str
) -> None:
    consumers = [
        client.subscribe(topic, "exclusive"),
        client.subscribe(topic, "shared", consumer_type=pulsar.ConsumerType.Shared),
    ]
    path = f"persistent/{topic.removeprefix('persistent://')}"
    producer = client.create_producer(topic)
    sent = [b"%d" % number for number in range(30)]
    for number, body in enumerate(sent):
        producer.send(body)
        if number in (9, 19):
            ask(broker, "PUT", f"{path}/unload")
    for consumer in consumers:
        consumer.close()
    ask(broker, "PUT", f"{path}/unload")
    stored = ask(broker, "GET", f"{path}/internalStats")
    assert isinstance(stored, dict)
    lost = [each["ledgerId"] for each in stored["ledgers"] if each["entries"]][1]
    with ZooKeeper(cluster) as zookeeper:
        zookeeper.delete(f"/ledgers{ledger_path(lost)}")
    consumers = [
        client.subscribe(topic, "exclusive"),
        client.subscribe(topic, "shared", consumer_type=pulsar.ConsumerType.Shared),
    ]
    for consumer in consumers:
        assert received(consumer, 10) == sent[:10]
    until(
        lambda: broker.log.count(f"no such ledger: {lost}") >= 2,
        "the log names what is lost",
        seconds=PATIENCE,
    )
    found = {name: told(broker, topic, "read_failed", name) for name in ("exclusive", "shared")}
    try:
        administer(broker, found["shared"]["try"])
        for consumer in consumers:
            assert received(consumer, 10) == sent[20:]
    finally:
        ask(broker, "DELETE", "brokers/configuration/autoSkipNonRecoverableData")
    status, metrics = broker.ask("GET", "/metrics/")
    assert status == 200
    assert b'\nmagnetar_lost_entries_skipped{cluster="lab"} 20\n' in metrics


class ZooKeeper:
    """A client of another library, for a while."""

    def __init__(self, servers: BookKeeperServers) -> None:
        self._client = KazooClient(servers.zookeeper.address)

    def __enter__(self) -> KazooClient:
        self._client.start()
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def test_it_does_not_start_beside_who_owns_bundles_in_another_way(
    broker: BrokerProcess, cluster: BookKeeperServers, tmp_path: Path
) -> None:
    manager = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"
    record = json.dumps({"webServiceUrl": "http://other:1", "loadManagerClassName": manager}).encode()
    second = BrokerProcess(tmp_path, cluster, metadataStoreSessionTimeoutMillis=1000)
    with ZooKeeper(cluster) as zookeeper:
        zookeeper.create("/loadbalance/brokers/other:1", record, ephemeral=True)
        with pytest.raises(pytest.fail.Exception):
            second.start()
        until(
            lambda: "incompatible load manager" in broker.log,
            "the one that serves says so, too",
            seconds=PATIENCE,
        )
        zookeeper.delete("/loadbalance/brokers/other:1")
    assert "broker other:1 has loadManagerClassName" in second.log
    assert broker.runs


def test_it_ends_when_its_session_is_lost(
    broker: BrokerProcess, cluster: BookKeeperServers, client: pulsar.Client, topic: str
) -> None:
    consumer = client.subscribe(topic, "s")
    client.create_producer(topic).send(b"before")
    cluster.zookeeper.signal(signal.SIGSTOP)
    try:
        assert broker.ended(SESSION_MS / 1000 + PATIENCE) == 74
    finally:
        cluster.zookeeper.signal(signal.SIGCONT)
    assert "the session with ZooKeeper" in broker.log
    broker.start()
    assert received(consumer, 1) == [b"before"]


def test_a_short_silence_of_zookeeper_is_survived(
    started: BrokerProcess, cluster: BookKeeperServers, tmp_path: Path, topic: str
) -> None:
    """Short for a session of 20 seconds: a server takes some of them to start."""
    if started.runs:
        started.stop()
    broker = BrokerProcess(tmp_path, cluster, metadataStoreSessionTimeoutMillis=20_000)
    broker.start()
    client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(topic)
    producer.send(b"one")
    cluster.zookeeper.kill()

    def said() -> str:
        status, told = broker.ask("GET", "/admin/v2/brokers/health")
        return "" if status == 200 else told.decode()

    try:
        until(lambda: "ZooKeeper" in said(), "health names what is missing", seconds=PATIENCE)
        producer.send(b"two")
        cluster.zookeeper.start()
        producer.send(b"three")
        until(
            lambda: broker.ask("GET", "/admin/v2/brokers/health") == (200, b"ok"), "health", seconds=PATIENCE
        )
        client.close()
        broker.stop()
    finally:
        broker.close()


def test_it_waits_for_servers_that_are_not_there_yet(cluster: BookKeeperServers, tmp_path: Path) -> None:
    process = BrokerProcess(tmp_path, cluster, metadataStoreUrl=f"zk:127.0.0.1:{free_port()}")
    process.options = ["--wait", "0.5"]
    with pytest.raises(pytest.fail.Exception):
        process.start()
    assert "cannot be reached" in process.log
    process.options = []
    waiting = subprocess.Popen(
        [sys.executable, "-m", "magnetar", *process.command(), "-c", str(tmp_path / "standalone.conf")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert waiting.stderr is not None
    assert next(line for line in waiting.stderr if " waiting " in line)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(30) == 1
    waiting.stderr.close()


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"clusterName": "elsewhere"}, "magnetar initialize-cluster-metadata"),
        ({"metadataStoreUrl": ""}, "metadataStoreUrl is not set"),
        ({"metadataStoreUrl": "etcd:http://127.0.0.1:2379"}, "must be an address of ZooKeeper"),
        ({"managedLedgerDefaultWriteQuorum": 4}, "managedLedgerDefaultWriteQuorum 4 must not exceed"),
        ({"bookkeeperMetadataServiceUri": "etcd:x"}, "bookkeeperMetadataServiceUri"),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    cluster: BookKeeperServers, tmp_path: Path, settings: dict[str, int | str], wanted: str
) -> None:
    process = BrokerProcess(tmp_path, cluster, **settings)
    with pytest.raises(pytest.fail.Exception):
        process.start()
    assert wanted in process.log
