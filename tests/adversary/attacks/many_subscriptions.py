"""Thousands of subscriptions on one topic over one connection."""

from __future__ import annotations

from raw_client import command
from target import OWN, Target

from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_SUBSCRIPTIONS = 3_000
_AT_ONCE = 100


def attack(target: Target) -> None:
    with target.client("a-user") as client:
        for first in range(0, _SUBSCRIPTIONS, _AT_ONCE):
            for number in range(first, first + _AT_ONCE):
                fields = {"topic": OWN, "subscription": f"many-{number}", "consumer_id": number, "subType": 1}
                client.send(command(BaseCommand.SUBSCRIBE, request_id=number, **fields))
            for number in range(first, first + _AT_ONCE):
                client.take(BaseCommand.SUCCESS, request_id=number)
