"""What kept data directories have: written by one release, and looked for by all later ones."""

from __future__ import annotations

import json
import time
from typing import Any

import pulsar
from offloaded_topics import admin as administer
from offloaded_topics import check_read, ledgers, publish, wait_until
from polling import until
from pulsar.schema import Integer, JsonSchema, Record, String
from server import MINIATURE, Server

from magnetar.admin_client import AdminClient

SETTINGS: dict[str, int | str] = {
    **MINIATURE,
    "managedLedgerMaxUnackedRangesToPersist": 10_000,
    "acknowledgmentAtBatchIndexLevelEnabled": "true",
    "brokerDeleteInactiveTopicsEnabled": "false",
    "topicLevelPoliciesEnabled": "true",
}
TIERED = "tiered"
"""The folder of offloaded ledgers, beside the data; formats before tiered storage do not have it."""
OFFLOADING: dict[str, int | str] = {
    "managedLedgerOffloadDriver": "filesystem",
    # Records have absolute paths. This one is right wherever the archive is unpacked.
    "fileSystemURI": f"file:///proc/self/cwd/{TIERED}",
    "managedLedgerOffloadDeletionLagMs": 0,
}
NAMESPACE = "public/kept"
_POLICIES = f"/admin/v2/namespaces/{NAMESPACE}"
_SECONDS = 30.0
_DAY_AHEAD = 4_102_444_800_000
"""The first day of the year 2100, for a message that no test lives to see."""
_MESSAGES = 40
_OFFLOADED = 60
"""Messages of the offloaded topic."""
_WAITS = 10_000


class Order(Record):  # type: ignore[misc]
    number = Integer()


class LaterOrder(Record):  # type: ignore[misc]
    number = Integer()
    text = String()


def topic(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


def connected(server: Server) -> Any:
    return pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))


def write(server: Server, client: Any) -> None:
    """Writes everything that :func:`check` looks for."""
    assert server.ask("PUT", _POLICIES)[0] == 204
    _set_policies(server)
    _write_cursors(client)
    _write_batches(client)
    for kind in (Order, LaterOrder):
        producer = client.create_producer(topic("schemas"), schema=JsonSchema(kind))
        producer.send(kind(number=7))
        producer.close()
    _write_deduplicated(client)
    _write_compacted(server, client)
    client.subscribe(topic("delayed"), "waits", pulsar.ConsumerType.Shared).close()
    client.create_producer(topic("delayed")).send(b"later", deliver_at=_DAY_AHEAD)
    client.create_producer(topic("delayed")).send(b"now")
    client.subscribe(topic("replicated"), "moves", replicate_subscription_state_enabled=True).close()
    assert server.ask("PUT", f"{_persistent('partitioned')}/partitions", "3")[0] == 204
    client.create_producer(topic("partitioned")).send(b"one of three")
    client.create_producer(topic("terminated")).send(b"the last one")
    assert server.ask("POST", f"{_persistent('terminated')}/terminate")[0] == 200
    # Acknowledgements are on their way to the broker, and positions to the disk.
    time.sleep(1)


def check(server: Server, client: Any) -> None:
    """Looks for everything; leaves it as it is, except that messages are published with deduplication."""
    _check_policies(server)
    for name, wanted in _left().items():
        assert _backlog(server, "cursors", name) == len(wanted), name
        found = _received(client, topic("cursors"), name, len(wanted))
        assert found == wanted, name
    assert _received(client, topic("batches"), "index", 6) == [b"message %d" % n for n in range(4, 10)]
    _check_schemas(server)
    _check_deduplicated(client)
    _check_compacted(client)
    _check_delayed(server, client)
    stats = json.loads(server.ask("GET", f"{_persistent('replicated')}/stats")[1])
    assert stats["subscriptions"]["moves"]["isReplicated"]
    assert json.loads(server.ask("GET", f"{_persistent('partitioned')}/partitions")[1])["partitions"] == 3
    internal = json.loads(server.ask("GET", f"{_persistent('terminated')}/internalStats")[1])
    assert internal["state"] == "Terminated"


def write_offloaded(server: Server) -> None:
    """Writes a topic whose ledgers, but for the last one, are in tiered storage only."""
    publish(server, topic("offloaded"), _OFFLOADED, 10)
    administer(server, "topics", "offload", topic("offloaded"), "--size-threshold", "0")
    wait_until(server, topic("offloaded"), len(ledgers(server, topic("offloaded"))) - 1)
    # Local copies go a moment later.
    while _locally(server) > 1:
        time.sleep(0.1)


def _locally(server: Server) -> int:
    """Returns the number of ledgers of the offloaded topic that the ledger store has."""
    admin = AdminClient(server.http_url)
    plan = admin.make_read_plan(topic("offloaded"), (-1, -1))
    admin.release_read_plan(plan["id"])
    return len({each["ledgerId"] for each in plan["ranges"]})


def check_offloaded(server: Server) -> None:
    """Looks for everything that :func:`write_offloaded` has written."""
    assert sum(each["offloaded"] for each in ledgers(server, topic("offloaded"))) > 1
    check_read(server, topic("offloaded"), _OFFLOADED, 10)


def _persistent(name: str) -> str:
    return f"/admin/v2/persistent/{NAMESPACE}/{name}"


def _set_policies(server: Server) -> None:
    for path, body in (
        ("retention", '{"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}'),
        ("deduplication", "true"),
        ("permissions/reader", '["consume"]'),
        ("schemaCompatibilityStrategy", '"FORWARD"'),
    ):
        method = "PUT" if path == "schemaCompatibilityStrategy" else "POST"
        status, answer = server.ask(method, f"{_POLICIES}/{path}", body)
        assert status == 204, (path, answer)


def _check_policies(server: Server) -> None:
    found = json.loads(server.ask("GET", _POLICIES)[1])
    assert found["retention_policies"] == {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
    assert found["deduplicationEnabled"] is True
    assert found["auth_policies"]["namespace_auth"] == {"reader": ["consume"]}
    assert found["schema_compatibility_strategy"] == "FORWARD"
    assert server.ask("GET", f"{_persistent('cursors')}/maxConsumers") == (200, b"17")


def _write_cursors(client: Any) -> None:
    name = topic("cursors")
    consumers = {
        kind: client.subscribe(
            name, kind, pulsar.ConsumerType.Exclusive, properties={"written": "by a release"}
        )
        for kind in ("individual", "cumulative", "none")
    }
    producer = client.create_producer(name, batching_enabled=False)
    for number in range(_MESSAGES):
        producer.send(b"message %d" % number, properties={"number": str(number)})
    for number in range(_MESSAGES):
        message = consumers["individual"].receive(_WAITS)
        if number % 2:
            consumers["individual"].acknowledge(message)
    for _ in range(_MESSAGES // 2):
        message = consumers["cumulative"].receive(_WAITS)
    consumers["cumulative"].acknowledge_cumulative(message)
    for consumer in consumers.values():
        consumer.close()


def _left() -> dict[str, list[bytes]]:
    """The messages that each subscription has not acknowledged."""
    numbers = {
        "individual": range(0, _MESSAGES, 2),
        "cumulative": range(_MESSAGES // 2, _MESSAGES),
        "none": range(_MESSAGES),
    }
    return {name: [b"message %d" % number for number in each] for name, each in numbers.items()}


def _write_batches(client: Any) -> None:
    """One batch of ten messages, of which four are acknowledged."""
    consumer = client.subscribe(
        topic("batches"), "index", pulsar.ConsumerType.Shared, batch_index_ack_enabled=True
    )
    producer = client.create_producer(
        topic("batches"), batching_enabled=True, batching_max_messages=10, batching_max_publish_delay_ms=5000
    )
    for number in range(10):
        producer.send_async(b"message %d" % number, None)
    producer.flush()
    for _ in range(4):
        consumer.acknowledge(consumer.receive(_WAITS))
    time.sleep(0.5)
    consumer.close()


def _check_schemas(server: Server) -> None:
    path = f"/admin/v2/schemas/{NAMESPACE}/schemas/schemas"
    found = json.loads(server.ask("GET", path)[1])["getSchemaResponses"]
    assert [(each["version"], each["type"]) for each in found] == [(0, "JSON"), (1, "JSON")]
    assert ["text" in each["data"] for each in found] == [False, True]


def _write_deduplicated(client: Any) -> None:
    producer = client.create_producer(topic("once"), producer_name="kept", batching_enabled=False)
    for number in range(42):
        producer.send(b"message %d" % number, sequence_id=number)
    producer.close()


def _check_deduplicated(client: Any) -> None:
    producer = client.create_producer(topic("once"), producer_name="kept", batching_enabled=False)
    assert producer.last_sequence_id() == 41
    producer.send(b"message 41 again", sequence_id=41)
    producer.close()
    assert _read(client, topic("once")) == [b"message %d" % number for number in range(42)]


def _write_compacted(server: Server, client: Any) -> None:
    producer = client.create_producer(topic("compacted"), batching_enabled=False)
    for number in range(12):
        producer.send(b"value %d" % number, partition_key=f"key {number % 4}")
    path = f"{_persistent('compacted')}/compaction"
    assert server.ask("PUT", path)[0] == 204
    until(lambda: json.loads(server.ask("GET", path)[1])["status"] == "SUCCESS", seconds=_SECONDS)
    producer.send(b"value 12", partition_key="key 0")
    assert server.ask("POST", f"{_persistent('cursors')}/maxConsumers?maxConsumers=17", "17")[0] == 204


def _check_compacted(client: Any) -> None:
    found = _read(client, topic("compacted"), compacted=True)
    # The newest of the first twelve for each key, and what came after the compaction.
    assert found == [b"value 8", b"value 9", b"value 10", b"value 11", b"value 12"]


def _check_delayed(server: Server, client: Any) -> None:
    consumer = client.subscribe(topic("delayed"), "waits", pulsar.ConsumerType.Shared)
    assert consumer.receive(_WAITS).data() == b"now"

    def delayed() -> bool:
        stats = json.loads(server.ask("GET", f"{_persistent('delayed')}/stats")[1])
        return bool(stats["subscriptions"]["waits"]["msgDelayed"] == 1)

    until(delayed, seconds=_SECONDS)
    consumer.close()


def _backlog(server: Server, name: str, subscription: str) -> int:
    stats = json.loads(server.ask("GET", f"{_persistent(name)}/stats")[1])
    return int(stats["subscriptions"][subscription]["msgBacklog"])


def _received(client: Any, name: str, subscription: str, count: int) -> list[bytes]:
    """The next messages, in their order; none is acknowledged."""
    consumer = client.subscribe(name, subscription, pulsar.ConsumerType.Shared)
    found = [consumer.receive(_WAITS).data() for _ in range(count)]
    consumer.close()
    return found


def _read(client: Any, name: str, *, compacted: bool = False) -> list[bytes]:
    reader = client.create_reader(name, pulsar.MessageId.earliest, is_read_compacted=compacted)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(_WAITS).data())
    reader.close()
    return found
