"""Creates topics with messages."""

from __future__ import annotations

import http.client
import io
import json
import urllib.parse

import fastavro

from magnetar.admin_client import AdminClient
from magnetar.client.blocking import Client

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "device", "type": "string"},
        {"name": "time", "type": "long"},
        {"name": "value", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
COLUMNS = {"bytes": ["value"], "avro": ["device", "time", "value", "note"]}
PARTITIONS = 2


def content(kind: str, size: int) -> bytes:
    """Returns the content of one message of about this size."""
    if kind == "bytes":
        return b"x" * size
    stream = io.BytesIO()
    record = {"device": "d-0001", "time": 1_700_000_000_000, "value": 0.5, "note": "n" * (size - 26)}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(AVRO), record)
    return stream.getvalue()


def make_topic(admin_url: str, topic: str, kind: str = "bytes") -> None:
    """Creates a topic with ``PARTITIONS`` partitions, and with the schema of its kind."""
    AdminClient(admin_url).create_partitioned_topic(topic, PARTITIONS)
    if kind == "avro":
        _upload_schema(admin_url, topic)


def _upload_schema(admin_url: str, topic: str) -> None:
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(admin_url).netloc, timeout=60)
    path = f"/admin/v2/schemas/{topic.partition('://')[2]}/schema"
    body = json.dumps({"type": "AVRO", "schema": json.dumps(AVRO), "properties": {}})
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status >= 300:
            raise SystemExit(f"the schema was refused: {answer.status} {answer.read()[:300]!r}")
    finally:
        connection.close()


def fill(service_url: str, topic: str, kind: str, size: int, rows: int) -> None:
    """Publishes ``rows`` messages in batches of 1,000; a subscription retains them."""
    data = content(kind, size)
    failed: list[object] = []

    def sent(result: object, message_id: object) -> None:
        if message_id is None:
            failed.append(result)

    with Client(service_url) as client:
        client.subscribe(topic, "keep").close()
        for partition in range(PARTITIONS):
            producer = client.create_producer(
                f"{topic}-partition-{partition}",
                batching_enabled=True,
                batching_max_messages=1000,
                batching_max_allowed_size_in_bytes=1 << 20,
                block_if_queue_full=True,
                max_pending_messages=20_000,
            )
            for _ in range(rows // PARTITIONS):
                producer.send_async(data, sent)
            producer.flush()
    if failed:
        raise SystemExit(f"publishing failed: {failed[0]}")


def messages_in(service_url: str, admin_url: str, topic: str) -> int:
    """Returns the number of messages published to the partitions."""
    admin = AdminClient(admin_url)
    return sum(
        int(admin.topic_stats(f"{topic}-partition-{number}")["msgInCounter"]) for number in range(PARTITIONS)
    )
