"""Looking for a topic without making it (PIP-344), as Java does for topics of retry and dead letters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from raw_client import Client
from server import Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandPartitionedTopicMetadataResponse


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.port)
    yield made
    made.close()


def test_only_looking_makes_nothing(client: Client, topic: str) -> None:
    assert client.connected.feature_flags.supports_get_partitioned_metadata_without_auto_creation

    def look() -> CommandPartitionedTopicMetadataResponse:
        found = client.ask(
            BaseCommand.PARTITIONED_METADATA,
            BaseCommand.PARTITIONED_METADATA_RESPONSE,
            topic=topic,
            metadata_auto_creation_enabled=False,
        )
        assert isinstance(found, CommandPartitionedTopicMetadataResponse)
        return found

    for _again in range(2):
        found = look()
        assert found.response == CommandPartitionedTopicMetadataResponse.Failed
        assert found.error == ServerErrorCode.TOPIC_NOT_FOUND
    client.produce(topic)
    assert (look().response, look().partitions) == (CommandPartitionedTopicMetadataResponse.Success, 0)
