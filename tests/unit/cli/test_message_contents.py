"""Contents of messages by schemas that are not to be had."""

from __future__ import annotations

from typing import Any

import pytest

from magnetar.cli.messages.lines import SchemaDecoders
from magnetar.client import AuthorizationError, PulsarException, TopicNotFound
from magnetar.client.message import Message
from magnetar.client.message_id import MessageId
from magnetar.client.schema import TopicSchema
from magnetar.protocol.metadata import Entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata


class Schemas:
    """A client that answers each question for a schema in one way."""

    def __init__(self, answer: TopicSchema | PulsarException) -> None:
        self.asked: list[tuple[str, bytes]] = []
        self._answer = answer

    def schema(self, topic: str, version: bytes) -> TopicSchema:
        self.asked.append((topic, version))
        if isinstance(self._answer, PulsarException):
            raise self._answer
        return self._answer


def message(version: bytes = b"") -> Message:
    metadata = MessageMetadata(schema_version=version)
    return Message("t-partition-1", MessageId(1, 2, 3), Entry(None, metadata, b""), b"", b"words", 0)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (TopicNotFound("none"), ""),
        (AuthorizationError("not you"), "AuthorizationError: not you"),
        (TopicSchema("AVRO", b"{"), "the newest version of the schema are not decoded"),
        (TopicSchema("KEY_VALUE", b"a"), "the key and value are truncated"),
        (TopicSchema("PROTOBUF", b"{}"), ""),
    ],
)
def test_each_version_is_asked_for_once(answer: Any, said: str) -> None:
    client: Any = Schemas(answer)
    words: list[str] = []
    contents = SchemaDecoders(client, words.append)
    for _ in range(2):
        assert contents.decoded(message()) is None
    assert client.asked == [("persistent://public/default/t", b"")]
    assert [said in each for each in words] == ([True] if said else [])
    assert contents.decoded(message(b"\0" * 8)) is None
    assert client.asked[1:] == [("persistent://public/default/t", b"\0" * 8)]
