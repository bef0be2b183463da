"""The records of a namespace's ``__change_events``: Avro, with the schema that Pulsar registers for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from io import BytesIO
from struct import error as StructError
from typing import TYPE_CHECKING, Any, NamedTuple

import fastavro

from magnetar.naming.topic_name import TopicName
from magnetar.protocol.compression import decompress
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import build_entry, parse_entry, split_batch
from magnetar.protocol.pulsar_api_pb2 import CompressionType, MessageMetadata

if TYPE_CHECKING:
    from fastavro.types import Schema

GLOBAL = "__G__"
"""The prefix of the key of policies for all clusters."""

SCHEMA_PROPERTIES = {"__alwaysAllowNull": "true", "__jsr310ConversionEnabled": "false"}
"""The properties with which Pulsar registers the schema."""

Policies = dict[str, object]


class PolicyChange(NamedTuple):
    """One record: the new policies of a topic."""

    key: str
    """The topic's full name, with the prefix :data:`GLOBAL` for policies for all clusters."""
    policies: Policies | None
    """The ``TopicPolicies``; None: the policies were deleted."""


def key_of(topic: TopicName, *, everywhere: bool) -> str:
    return f"{GLOBAL if everywhere else ''}{topic}"


def definition() -> str:
    """Returns the definition of the schema that Pulsar registers, of type AVRO."""
    # Only the first policy of a topic needs the import, and a start is 5 ms faster without it.
    from importlib.resources import files

    return files("magnetar.broker.system_topics").joinpath("change_events.avsc").read_text("utf-8")


@cache
def _schema() -> Schema:
    return fastavro.parse_schema(json.loads(definition()))


def encode(
    topic: TopicName,
    policies: Mapping[str, object] | None,
    *,
    everywhere: bool,
    cluster: str,
    producer: str,
    sequence_id: int,
    publish_time_ms: int,
    schema_version: bytes,
    stays_here: bool = False,
) -> bytes:
    """Returns the entry that stores the policies of a topic.

    :param policies: ``TopicPolicies``; None: the policies of the topic are deleted
    :param everywhere: whether the policies apply in all clusters
    :param stays_here: whether the entry is not replicated, although the policies apply in all clusters
    :param schema_version: the version of the records' schema in ``__change_events``, as messages carry it
    """
    payload = b""
    if policies is not None:
        out = BytesIO()
        event = {
            "actionType": "UPDATE",
            "eventType": "TOPIC_POLICY",
            "replicateTo": None if everywhere else [cluster],
            "topicPoliciesEvent": {
                "domain": topic.domain.value,
                "tenant": topic.tenant,
                "namespace": topic.namespace,
                "topic": topic.local,
                "policies": {**policies, "isGlobal": everywhere},
            },
        }
        fastavro.schemaless_writer(out, _schema(), event)
        payload = out.getvalue()
    metadata = MessageMetadata(
        producer_name=producer,
        sequence_id=sequence_id,
        publish_time=publish_time_ms,
        partition_key=key_of(topic, everywhere=everywhere),
        partition_key_b64_encoded=False,
        replicate_to=[cluster] if stays_here or not everywhere else [],
        uncompressed_size=len(payload),
        schema_version=schema_version,
    )
    if policies is None:
        metadata.null_value = True
    return build_entry(metadata, payload)


_MOST_BYTES = 1 << 20
"""The maximum size of the uncompressed records in an entry; a topic's records take some kilobytes."""


def decode(entry: bytes) -> Iterator[PolicyChange]:
    """Iterates over the changes of topic policies in an entry; events of other types are skipped.

    :raises ProtocolError: the entry is damaged
    :raises EntryError: a record is not of this schema
    """
    parsed = parse_entry(entry)
    metadata = parsed.metadata
    payload = bytes(parsed.payload)
    if metadata.compression != CompressionType.NONE:
        # Any client that may publish to the namespace could have sent the entry, and decompression blocks the
        # loop.
        payload = decompress(metadata.compression, payload, metadata.uncompressed_size, _MOST_BYTES)
    if metadata.HasField("num_messages_in_batch"):
        for message in split_batch(payload, metadata.num_messages_in_batch):
            yield from _change(message.metadata.partition_key, message.metadata.null_value, message.payload)
    else:
        yield from _change(metadata.partition_key, metadata.null_value, payload)


def _change(key: str, is_null: bool, payload: bytes) -> Iterator[PolicyChange]:
    if is_null:
        yield PolicyChange(key, None)
        return
    try:
        event: Any = fastavro.schemaless_reader(BytesIO(payload), _schema(), None)
    except (ValueError, LookupError, EOFError, TypeError, OverflowError, MemoryError, StructError) as error:
        raise EntryError(f"not a record of topic policies: {error}") from error
    if event["eventType"] != "TOPIC_POLICY" or event["topicPoliciesEvent"] is None:
        return
    policies = event["topicPoliciesEvent"]["policies"]
    gone = event["actionType"] == "DELETE" or policies is None
    yield PolicyChange(key, None if gone else _without_nulls(policies))


def topic_of(key: str) -> TopicName:
    """Returns the topic from the key of its policies.

    :raises InvalidName: the key does not name a topic
    """
    return TopicName.parse(key.removeprefix(GLOBAL))


def _without_nulls(value: object) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
