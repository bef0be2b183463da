"""A request that cannot be done is answered in the form that its answer has."""

from __future__ import annotations

import pytest
from peers import Brokers, Peer

from magnetar.errors import ServerErrorCode
from magnetar.ledger.interface import LedgerError
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    Schema,
)

MISSING = "persistent://public/nowhere/topic"


@pytest.mark.parametrize(
    ("kind", "name", "answer", "answered", "field"),
    [
        (BaseCommand.LOOKUP, "lookupTopic", BaseCommand.LOOKUP_RESPONSE, "lookupTopicResponse", ""),
        (
            BaseCommand.PARTITIONED_METADATA,
            "partitionMetadata",
            BaseCommand.PARTITIONED_METADATA_RESPONSE,
            "partitionMetadataResponse",
            "",
        ),
        (BaseCommand.GET_SCHEMA, "getSchema", BaseCommand.GET_SCHEMA_RESPONSE, "getSchemaResponse", "error_"),
        (
            BaseCommand.GET_OR_CREATE_SCHEMA,
            "getOrCreateSchema",
            BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
            "getOrCreateSchemaResponse",
            "error_",
        ),
    ],
)
def test_each_request_is_refused_in_its_own_form(
    kind: BaseCommand.Type.ValueType,
    name: str,
    answer: BaseCommand.Type.ValueType,
    answered: str,
    field: str,
) -> None:
    brokers = Brokers()
    peer = Peer(brokers)
    command = BaseCommand(type=kind)
    request = getattr(command, name)
    request.topic, request.request_id = MISSING, 2**63 + 5
    if kind == BaseCommand.GET_OR_CREATE_SCHEMA:
        request.schema.name, request.schema.schema_data, request.schema.type = "s", b"", Schema.String
    peer.connection.data_received(encode_command(command))
    brokers.until(lambda: peer.count(answer) == 1)
    refused = getattr(peer.received(answer)[0], answered)
    assert refused.request_id == 2**63 + 5
    code = refused.error_code if field else refused.error
    text = refused.error_message if field else refused.message
    assert code == ServerErrorCode.TOPIC_NOT_FOUND
    assert text
    assert peer.count(BaseCommand.ERROR) == 0
    states = {
        "lookupTopic": CommandLookupTopicResponse.Failed,
        "partitionMetadata": CommandPartitionedTopicMetadataResponse.Failed,
    }
    if name in states:
        assert refused.response == states[name]


def test_what_breaks_inside_is_told_in_that_form_too(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    peer = Peer(brokers)

    async def broken(*_args: object) -> None:
        raise LedgerError("no disk")

    monkeypatch.setattr(brokers.broker.schemas, "get", broken)
    peer.send(BaseCommand.GET_SCHEMA, "getSchema", topic=MISSING, request_id=3)
    brokers.until(lambda: peer.count(BaseCommand.GET_SCHEMA_RESPONSE) == 1)
    refused = peer.received(BaseCommand.GET_SCHEMA_RESPONSE)[0].getSchemaResponse
    assert refused.request_id == 3
    assert refused.HasField("error_code")
    assert not refused.HasField("schema")
