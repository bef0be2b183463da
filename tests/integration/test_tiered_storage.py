"""Ledgers of a real broker in tiered storage, read back by the official client; the commands of the page."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from urllib.request import urlopen

import httpx
import pulsar
import pytest
from bucket import BUCKET, SECRET, Bucket, new_bucket
from explained import side_of
from faulty_object_store import Fault, object_store
from offloaded_topics import ADMIN, admin, check_read, connected, content, ledgers, publish, run, wait_until
from polling import until_wanted
from secured import SUPERUSER, SecuredServer, token
from server import Server

from magnetar.client import Client, ConsumerType, InitialPosition

StartServer = Callable[..., Server]
PAGE = Path(__file__).parents[2] / "docs" / "tiered-storage.md"
MEGABYTES = int(os.environ.get("MAGNETAR_OFFLOAD_MB", "60"))
"""Messages of about 1 MB that move to a file system and back."""
KEEPING: dict[str, int | str] = {
    "managedLedgerMaxEntriesPerLedger": 50,
    "managedLedgerMinLedgerRolloverTimeMinutes": 0,
    "defaultRetentionTimeInMinutes": -1,
    "defaultRetentionSizeInMB": -1,
    "brokerDeleteInactiveTopicsEnabled": "false",
}
INDEXES = (
    "org.apache.pulsar.common.intercept.AppendBrokerTimestampMetadataInterceptor,"
    "org.apache.pulsar.common.intercept.AppendIndexMetadataInterceptor"
)
AT_ONCE: dict[str, int | str] = {
    "managedLedgerOffloadAutoTriggerSizeThresholdBytes": 0,
    "managedLedgerOffloadDeletionLagMs": 0,
}


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with new_bucket() as bucket:
        yield bucket


def local_bytes(server: Server, topic: str) -> int:
    report = run("magnetar", "storage", "report", "--admin-url", server.http_url, "--json")
    (row,) = [each for each in json.loads(report.stdout)["topics"] if each["topic"] == topic]
    return int(row["storedBytes"] - row["offloadedBytes"])


def test_200_megabytes_move_to_an_object_store_and_are_read_from_it(
    start_server: StartServer, bucket: Bucket, topic: str
) -> None:
    server = start_server(**KEEPING, **AT_ONCE, **bucket.settings)
    count, size = 210, 1_000_000
    publish(server, topic, count, size)
    wait_until(server, topic, 4)
    while local_bytes(server, topic) > 11 * size:
        time.sleep(0.1)
    assert len(bucket.names) == 8
    check_read(server, topic, count, size)
    server.kill()
    server.start()
    check_read(server, topic, count, size)
    stats = json.loads(admin(server, "topics", "stats", topic))
    assert stats["offloadedStorageSize"] > 200 * size
    _, metrics = server.ask("GET", "/metrics/")
    (read,) = re.findall(
        rb'^brk_ledgeroffloader_read_bytes_total{.*topic="%b"} (\d+)$' % topic.encode(), metrics, re.MULTILINE
    )
    assert int(read) > 200 * size
    (rate,) = re.findall(
        rb'^brk_ledgeroffloader_read_offload_rate{.*topic="%b"} (\S+)$' % topic.encode(),
        metrics,
        re.MULTILINE,
    )
    assert float(rate) > 0
    for kind in ("offload_index", "offload_data"):
        name = b"brk_ledgeroffloader_read_%b_latency" % kind.encode()
        durations = re.findall(
            rb'^%b{.*topic="%b",quantile="([\d.]+)"} (\S+)$' % (name, topic.encode()), metrics, re.MULTILINE
        )
        assert [quantile for quantile, _ in durations] == [b"0.5", b"0.95", b"0.99"]
        # Microseconds: a request takes more than 0.1 ms, and less than 10 s.
        assert all(100 < float(value) < 10_000_000 for _, value in durations), durations
    admin(server, "topics", "delete", "-f", topic)
    while bucket.names:
        time.sleep(0.1)
    deleted = rb'^brk_ledgeroffloader_delete_offload_ops_total{.*topic="%b",status="succeed"} 4$'
    until_wanted(
        lambda: re.findall(deleted % topic.encode(), server.ask("GET", "/metrics/")[1], re.MULTILINE),
        lambda found: len(found) == 1,
    )
    assert SECRET not in server.log


def test_a_killed_broker_goes_on_offloading(start_server: StartServer, bucket: Bucket, topic: str) -> None:
    server = start_server(**KEEPING, **AT_ONCE, **bucket.settings)
    for kill in range(4):
        publish(server, topic, 120, 50_000, 120 * kill)
        server.kill()
        server.start()
    publish(server, topic, 120, 50_000, 480)
    wait_until(server, topic, 11)
    check_read(server, topic, 600, 50_000)
    while len(bucket.names) != 2 * sum(each["offloaded"] for each in ledgers(server, topic)):
        time.sleep(0.1)


def test_a_bucket_with_a_foreign_cluster_and_strange_objects_keeps_what_is_theirs(
    start_server: StartServer, bucket: Bucket, topic: str
) -> None:
    """Both clusters number their ledgers alike, and one of them dies, goes on and deletes what it has."""
    strange = {
        "0a2b3c4d-0000-4000-8000-000000000001-ledger-3": {"s3managedledgeroffloaderformatversion": "1"},
        "0a2b3c4d-0000-4000-8000-000000000001-ledger-3-index": {},
        "notes.txt": {},
    }
    for name, metadata in strange.items():
        bucket.put(name, name.encode(), metadata)
    bucket.begin_upload("0a2b3c4d-0000-4000-8000-000000000002-ledger-4")
    ours, theirs = (start_server(**KEEPING, **AT_ONCE, **bucket.settings) for _ in range(2))
    for cluster in (ours, theirs):
        publish(cluster, topic, 230, 20_000)
    for cluster in (ours, theirs):
        wait_until(cluster, topic, 4)
    numbers = [
        {each["ledgerId"] for each in ledgers(each, topic) if each["offloaded"]} for each in (ours, theirs)
    ]
    assert numbers[0] & numbers[1], "the clusters have no ledger id in common"
    publish(ours, topic, 100, 20_000, 230)
    ours.kill()
    ours.start()
    check_read(ours, topic, 330, 20_000)
    admin(ours, "topics", "delete", "-f", topic)
    until_wanted(lambda: len(bucket.names), lambda count: count == len(strange) + 2 * 4)
    # Whatever a broker looks for at its start and now and then has been looked for.
    ours.restart(kill=False)
    time.sleep(1)
    assert len(bucket.names) == len(strange) + 2 * 4
    check_read(theirs, topic, 230, 20_000)
    theirs.restart(kill=True)
    check_read(theirs, topic, 230, 20_000)
    assert {name: bucket.get(name) for name in strange} == {name: name.encode() for name in strange}
    assert bucket.uploads == {"0a2b3c4d-0000-4000-8000-000000000002-ledger-4"}


def test_a_scan_compares_the_objects_of_a_bucket_with_the_records(
    start_server: StartServer, bucket: Bucket, topic: str
) -> None:
    server = start_server(**KEEPING, **AT_ONCE, **bucket.settings)
    path = "/admin/v2/namespaces/public/default/scanOffloadedLedgers"
    assert json.loads(server.ask("GET", path)[1]) == {"objects": [], "total": 0, "errors": 0, "unknown": 0}
    publish(server, topic, 1250, 100)
    wait_until(server, topic, 25)
    managed_ledger = f"public/default/persistent/{topic.rpartition('/')[2]}"
    mine = {"pulsarClusterName": "standalone", "managedledgername": managed_ledger}
    ledger_id = ledgers(server, topic)[0]["ledgerId"]
    for name, metadata in {
        f"0-ledger-{ledger_id}": mine,
        "1-ledger-999999": mine,
        f"2-ledger-{ledger_id}": {**mine, "managedledgername": "public/default/persistent/gone"},
        f"3-ledger-{ledger_id}": {**mine, "managedledgername": "../brokers"},
        f"4-ledger-{ledger_id}": {**mine, "pulsarClusterName": "another"},
        f"5-ledger-{ledger_id}-index": {},
        f"6-ledger-{ledgers(server, topic)[-1]['ledgerId']}": mine,
        "notes.txt": {},
    }.items():
        bucket.put(name, b"strange", metadata)
    status, answer = server.ask("GET", path)
    assert status == 200
    found = json.loads(answer)
    statuses = {each["name"]: each["status"] for each in found["objects"]}
    strange = ["BAD-UUID", *["NOT-FOUND"] * 3, "UNKNOWN", "UNKNOWN", "NOT-OFFLOADED"]
    assert [statuses[name] for name in sorted(statuses) if re.match("[0-6]-", name)] == strange
    own = [each for each in found["objects"] if not re.match("[0-6]-", each["name"])]
    offloaded = {name for name in bucket.names if not re.match("[0-6]-|notes", name)}
    assert {each["name"] for each in own} == offloaded
    assert {(each["status"], each["managedLedgerName"], each["offloaded"]) for each in own} == {
        ("OK", managed_ledger, True)
    }
    assert (found["total"], found["errors"], found["unknown"]) == (len(own) + 7, 5, 2)
    assert len(own) >= 50


def test_a_scan_shows_objects_of_other_tenants_to_superusers_only(tmp_path: Path, bucket: Bucket) -> None:
    server = SecuredServer(tmp_path, **bucket.settings)
    server.start()
    try:

        def ask(role: str, method: str, path: str, body: str | None = None) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token(role)}", "Content-Type": "application/json"}
            answer = httpx.request(method, server.http_url + path, content=body, headers=headers)
            return answer.status_code, answer.text

        tenant = json.dumps({"adminRoles": ["team"], "allowedClusters": ["standalone"]})
        assert ask(SUPERUSER, "PUT", "/admin/v2/tenants/acme", tenant)[0] == 204
        assert ask(SUPERUSER, "PUT", "/admin/v2/namespaces/acme/shop")[0] == 204
        for number, owner in enumerate(("acme", "public")):
            ledger = f"{owner}/shop/persistent/orders"
            metadata = {"pulsarClusterName": "standalone", "managedledgername": ledger}
            bucket.put(f"{number}-ledger-5", b"strange", metadata)
        bucket.put("2-ledger-5", b"strange", {"pulsarClusterName": "another"})
        path = "/admin/v2/namespaces/acme/shop/scanOffloadedLedgers"
        answers = {role: json.loads(ask(role, "GET", path)[1]) for role in (SUPERUSER, "team")}
        names = {role: sorted(each["name"] for each in found["objects"]) for role, found in answers.items()}
        assert names == {SUPERUSER: ["0-ledger-5", "1-ledger-5", "2-ledger-5"], "team": ["0-ledger-5"]}
        assert answers["team"]["total"] == 1
    finally:
        server.close()


def test_a_scan_says_why_there_is_nothing_to_list(start_server: StartServer, tmp_path: Path) -> None:
    path = "/admin/v2/namespaces/public/default/scanOffloadedLedgers"
    server = start_server()
    status, answer = server.ask("GET", path)
    assert (status, b"set managedLedgerOffloadDriver" in answer) == (412, True)
    policies = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": f"file://{tmp_path}"}
    offload = path.replace("scanOffloadedLedgers", "offloadPolicies")
    assert server.ask("POST", offload, json.dumps(policies))[0] == 204
    assert server.ask("GET", path)[0] == 501
    policies = {
        "managedLedgerOffloadDriver": "aws-s3",
        "s3ManagedLedgerOffloadBucket": "none",
        "s3ManagedLedgerOffloadServiceEndpoint": "http://127.0.0.1:1",
        "s3ManagedLedgerOffloadCredentialId": "key",
        "s3ManagedLedgerOffloadCredentialSecret": SECRET,
    }
    assert server.ask("POST", offload, json.dumps(policies))[0] == 204
    status, answer = server.ask("GET", path)
    assert (status, b"tiered storage cannot be listed" in answer) == (500, True)
    assert SECRET.encode() not in answer
    assert server.ask("GET", path.replace("default", "missing"))[0] == 404


def test_a_file_system_keeps_ledgers(start_server: StartServer, topic: str, tmp_path: Path) -> None:
    server = start_server(
        **KEEPING, **AT_ONCE, managedLedgerOffloadDriver="filesystem", fileSystemURI=f"file://{tmp_path}"
    )
    publish(server, topic, 230, 1000)
    wait_until(server, topic, 4)
    check_read(server, topic, 230, 1000)
    assert len(list(tmp_path.rglob("data"))) == 4
    admin(server, "topics", "delete", "-f", topic)
    while list(tmp_path.rglob("data")):
        time.sleep(0.1)


def test_everything_comes_back_from_a_file_system_byte_by_byte(
    start_server: StartServer, topic: str, tmp_path: Path
) -> None:
    server = start_server(
        **KEEPING,
        **AT_ONCE,
        managedLedgerOffloadDriver="filesystem",
        fileSystemURI=f"file://{tmp_path}/tiered",
        backlogQuotaDefaultLimitBytes=-1,
    )
    client = connected(server)
    producer = client.create_producer(
        topic, batching_enabled=False, block_if_queue_full=True, max_pending_messages=50
    )
    for number in range(MEGABYTES):
        producer.send_async(anything(number), None)
    producer.flush()
    client.close()
    full = MEGABYTES // 50
    wait_until(server, topic, full)
    while local_bytes(server, topic) > 50 * 1_100_000:
        time.sleep(0.1)
    server.kill()
    server.start()
    client = connected(server)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, receiver_queue_size=50)
    for number in range(MEGABYTES):
        assert reader.read_next(60_000).data() == anything(number), number
    client.close()


def anything(number: int) -> bytes:
    """Returns a message of about 1 MB, always the same for a number."""
    random = Random(number)
    return random.randbytes(random.randrange(900_000, 1_100_000))


def test_what_an_earlier_driver_offloaded_stays_readable_and_is_deleted(
    start_server: StartServer, bucket: Bucket, topic: str, tmp_path: Path
) -> None:
    server = start_server(**KEEPING, **bucket.settings)
    at_once = {"managedLedgerOffloadThresholdInBytes": 0, "managedLedgerOffloadDeletionLagInMillis": 0}
    files = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": f"file://{tmp_path}/tiered"}
    for number, place in enumerate((files, bucket.settings, files)):
        body = json.dumps({**place, **at_once})
        assert server.ask("POST", "/admin/v2/namespaces/public/default/offloadPolicies", body)[0] == 204
        publish(server, topic, 100, 1000, 100 * number)
        wait_until(server, topic, 2 * number + 2)
        while local_bytes(server, topic):
            time.sleep(0.1)
        check_read(server, topic, 100 * number + 100, 1000)
    server.restart(kill=True)
    check_read(server, topic, 300, 1000)
    stored = [len(list(tmp_path.rglob("data"))), len(bucket.names)]
    assert stored == [4, 4]
    admin(server, "topics", "delete", "-f", topic)
    while bucket.names or list(tmp_path.rglob("data")):
        time.sleep(0.1)


def test_a_store_that_cannot_be_written_is_reported_and_loses_nothing(
    start_server: StartServer, topic: str, tmp_path: Path
) -> None:
    server = start_server(
        **KEEPING, managedLedgerOffloadDriver="filesystem", fileSystemURI="file:///proc/nowhere"
    )
    publish(server, topic, 120, 100)
    admin(server, "topics", "offload", topic, "--size-threshold", "0")
    ended = run(ADMIN, "--admin-url", server.http_url, "topics", "offload-status", "-w", topic)
    assert ended.returncode == 1
    assert "Error offloading: " in ended.stderr
    assert "/proc/nowhere" in ended.stderr
    assert not any(each["offloaded"] for each in ledgers(server, topic))
    told = run("magnetar", "explain", topic, "--admin-url", server.http_url).stdout
    assert re.search(r"^offloading: failed for .*$", told, re.MULTILINE), told
    assert "/proc/nowhere" in told
    check_read(server, topic, 120, 100)


def test_a_broker_without_a_driver_says_in_the_status_what_to_set(
    start_server: StartServer, topic: str
) -> None:
    server = start_server(**KEEPING)
    publish(server, topic, 120, 100)
    admin(server, "topics", "offload", topic, "--size-threshold", "0")
    ended = run(ADMIN, "--admin-url", server.http_url, "topics", "offload-status", "-w", topic)
    assert ended.returncode == 1
    assert "Error offloading: the topic has no tiered storage: set managedLedgerOffloadDriver" in ended.stderr
    check_read(server, topic, 120, 100)


def test_the_commands_of_the_page(start_server: StartServer, bucket: Bucket) -> None:
    server = start_server(**KEEPING, **bucket.settings)
    publish(server, "my-topic", 120, 1000)
    commands = re.findall(r"^    (pulsar-admin|magnetar) (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) == 10
    for program, line in commands:
        words, access = line.replace("10M", "0").split(), ["--admin-url", server.http_url]
        ended = run(ADMIN, *access, *words) if program == "pulsar-admin" else run(program, *words, *access)
        assert ended.returncode == 0, (line, ended.stderr)
    assert sum(each["offloaded"] for each in ledgers(server, "my-topic")) == 2


def test_a_masked_secret_that_is_written_back_changes_nothing(
    start_server: StartServer, bucket: Bucket, topic: str
) -> None:
    server = start_server(**KEEPING)
    namespace = "public/default"
    admin(
        server, "namespaces", "set-offload-policies", namespace, "-d", "aws-s3", "-b", BUCKET,
        "-e", bucket.url, "-i", "key", "-s", SECRET, "-oat", "0", "-oae", "0s",
    )  # fmt: skip
    shown = admin(server, "namespaces", "get-offload-policies", namespace)
    assert SECRET not in shown
    assert SECRET not in admin(server, "namespaces", "policies", namespace)
    assert server.ask("POST", f"/admin/v2/namespaces/{namespace}/offloadPolicies", shown)[0] == 204
    publish(server, topic, 120, 1000)
    wait_until(server, topic, 2)
    check_read(server, topic, 120, 1000)
    assert SECRET not in server.log


def test_a_store_that_is_gone_stops_only_its_consumers_and_is_explained(
    start_server: StartServer, topic: str, tmp_path: Path
) -> None:
    kept, away = tmp_path / "kept", tmp_path / "away"
    kept.mkdir()
    server = start_server(
        **KEEPING, **AT_ONCE, managedLedgerOffloadDriver="filesystem", fileSystemURI=f"file://{kept}"
    )
    publish(server, topic, 120, 1000)
    wait_until(server, topic, 2)
    while local_bytes(server, topic) > 30_000:
        time.sleep(0.1)
    server.kill()
    kept.rename(away)
    server.start()
    client = connected(server)
    consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
    found = until_wanted(lambda: side_of(server, topic), lambda found: found["reason"] == "read_failed")
    assert "cannot be read from tiered storage, filesystem (" in str(found)
    other = client.create_producer(f"{topic}-other")
    other.send(b"goes on")
    away.rename(kept)
    for number in range(120):
        assert consumer.receive(20_000).data() == content(number, 1000)
    client.close()


def test_what_an_aborted_transaction_gives_back_waits_for_a_store_that_is_away(
    start_server: StartServer, topic: str
) -> None:
    """The keys, which choose the consumer of each message, are in the store."""
    with object_store() as store:
        server = start_server(
            **KEEPING,
            **AT_ONCE,
            **store.settings(),
            managedLedgerOffloadDriver="aws-s3",
            transactionCoordinatorEnabled="true",
            managedLedgerCacheSizeMB=0,
            magnetarOffloadCacheSizeMB=0,
        )
        publish(server, topic, 120, 1000)
        wait_until(server, topic, 2)
        while local_bytes(server, topic) > 30_000:
            time.sleep(0.1)
        with Client(server.url) as client:
            consumer = client.subscribe(
                topic, "s", consumer_type=ConsumerType.KeyShared, initial_position=InitialPosition.Earliest
            )
            messages = [consumer.receive(20_000) for _ in range(120)]
            transaction = client.transaction().begin()
            for each in messages:
                consumer.acknowledge(each, transaction=transaction)
            store.plan(Fault.ERROR, "GET", times=1_000_000)
            transaction.abort()
            until_wanted(
                lambda: server.log.count("cannot read entries; trying again"), lambda count: count > 1
            )
            other = client.create_producer(topic)
            other.send(b"goes on")
            store.planned.clear()
            again = [consumer.receive(20_000).data() for _ in range(121)]
        assert sorted(again) == sorted([*(each.data() for each in messages), b"goes on"])
        assert "failed" not in server.log


def test_a_store_that_hangs_delays_only_readers_of_offloaded_ledgers(
    start_server: StartServer, topic: str
) -> None:
    with object_store() as store:
        server = start_server(
            **KEEPING,
            **AT_ONCE,
            **store.settings(),
            managedLedgerOffloadDriver="aws-s3",
            ttlDurationDefaultInSeconds=3600,
        )
        publish(server, topic, 120, 1000)
        wait_until(server, topic, 2)
        while local_bytes(server, topic) > 30_000:
            time.sleep(0.1)
        server.kill()
        for method in ("GET", "HEAD", "PUT", "POST"):
            store.plan(Fault.HANG, method)
        server.start()
        client = connected(server)
        consumer = client.subscribe(topic, "s", initial_position=pulsar.InitialPosition.Earliest)
        until_wanted(lambda: store.hanging, lambda hanging: hanging > 0)
        found = until_wanted(lambda: side_of(server, topic), lambda found: found["reason"] == "reading")
        assert "tiered storage is in progress: aws-s3 (" in str(found)
        assert store.endpoint in str(found)
        # The topic itself, others, and ledgers that cannot be offloaded now.
        latest = client.subscribe(topic, "latest")
        for number, name in enumerate([topic, *(f"{topic}-{other}" for other in range(3))]):
            with_it = latest if not number else client.subscribe(name, "s")
            producer = client.create_producer(name, batching_enabled=False)
            for each in range(120):
                producer.send(content(each, 1000))
                assert with_it.receive(20_000).data() == content(each, 1000)
        assert side_of(server, topic)["reason"] == "reading"
        # Neither does the end of a topic wait for the store.
        admin(server, "topics", "unload", topic)
        until_wanted(lambda: side_of(server, topic), lambda found: found["reason"] == "reading")
        store.released.set()
        for number in range(120):
            assert consumer.receive(60_000).data() == content(number, 1000)
        client.close()


def test_a_topic_is_loaded_while_the_store_of_its_last_messages_is_away(
    start_server: StartServer, topic: str, tmp_path: Path
) -> None:
    kept, away = tmp_path / "kept", tmp_path / "away"
    kept.mkdir()
    server = start_server(
        **KEEPING,
        **AT_ONCE,
        managedLedgerOffloadDriver="filesystem",
        fileSystemURI=f"file://{kept}",
        brokerDeduplicationEnabled="true",
        brokerEntryMetadataInterceptors=INDEXES,
    )
    client = connected(server)
    first = client.subscribe(topic, "s")
    producer = client.create_producer(topic, "p", batching_enabled=False, block_if_queue_full=True)
    for number in range(100):
        producer.send(content(number, 1000))
        first.acknowledge_cumulative(first.receive(20_000))
    client.close()
    # The third ledger is empty: the last message is in tiered storage only.
    while local_bytes(server, topic):
        time.sleep(0.1)
    # The position of the subscription is written later than it is acknowledged: at the latest when the topic
    # is unloaded.
    assert server.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/unload")[0] == 204
    server.kill()
    kept.rename(away)
    server.start()
    client = connected(server)
    producer = client.create_producer(topic, "p", batching_enabled=False)
    assert producer.last_sequence_id() == 99
    consumer = client.subscribe(topic, "s")
    # A duplicate, and a new message.
    producer.send(b"again", sequence_id=99)
    producer.send(b"new")
    assert consumer.receive(20_000).data() == b"new"
    path = topic.replace("://", "/")
    with urlopen(f"{server.http_url}/admin/v2/{path}/subscription/s/position/1", timeout=20) as peeked:
        assert peeked.headers["X-Pulsar-Broker-Entry-METADATA-index"] == "100"
    away.rename(kept)
    reader = client.create_reader(topic, pulsar.MessageId.earliest)
    for number in range(100):
        assert reader.read_next(20_000).data() == content(number, 1000)
    client.close()


def test_a_topic_is_compacted_whose_ledgers_are_in_tiered_storage(
    start_server: StartServer, topic: str, tmp_path: Path
) -> None:
    files = {"managedLedgerOffloadDriver": "filesystem", "fileSystemURI": f"file://{tmp_path}/tiered"}
    server = start_server(**KEEPING, **AT_ONCE, **files)
    client = connected(server)
    producer = client.create_producer(topic, batching_enabled=False, block_if_queue_full=True)
    for number in range(230):
        producer.send_async(b"%d" % number, None, partition_key=str(number % 7))
    producer.flush()
    wait_until(server, topic, 4)
    # Only the last ledger, with 30 entries, is left.
    while local_bytes(server, topic) > 30 * 100:
        time.sleep(0.1)
    admin(server, "topics", "compact", topic)
    admin(server, "topics", "compaction-status", "--wait-complete", topic)
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        found.append(int(reader.read_next(20_000).data()))
    assert found == list(range(223, 230))
    client.close()
