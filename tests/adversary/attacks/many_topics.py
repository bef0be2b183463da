"""Thousands of topics over one connection, and more partitions than a topic may have."""

from __future__ import annotations

from raw_client import command
from target import Target

from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_TOPICS = 3_000
_AT_ONCE = 100


def attack(target: Target) -> None:
    with target.client("a-user") as client:
        for first in range(0, _TOPICS, _AT_ONCE):
            for number in range(first, first + _AT_ONCE):
                fields = {"topic": f"persistent://a/ns/many-{number}", "producer_id": number}
                client.send(command(BaseCommand.PRODUCER, request_id=number, **fields))
            for number in range(first, first + _AT_ONCE):
                client.take(BaseCommand.PRODUCER_SUCCESS, request_id=number)
    status, answer = target.ask("PUT", "/admin/v2/persistent/a/ns/wide/partitions", "a-admin", 100_000)
    assert status == 406, (status, answer)
