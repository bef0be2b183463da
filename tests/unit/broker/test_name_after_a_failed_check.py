"""A producer whose last check of its permission has no answer leaves its name free."""

from __future__ import annotations

import pytest
from peers import TOPIC
from secured import Secured

from magnetar.broker.connections.permissions import Standing
from magnetar.metadata.interface import MetadataUnavailable
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def test_a_producer_that_was_not_opened_leaves_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    secured = Secured()
    peer = secured.peer("admin")
    check, checked = Standing.check, list[Standing]()

    async def no_answer_at_last(self: Standing) -> None:
        checked.append(self)
        if checked.count(self) == 2:
            raise MetadataUnavailable("no answer to get")
        await check(self)

    asked = {"topic": TOPIC, "producer_id": 1, "producer_name": "mine", "user_provided_producer_name": True}
    with monkeypatch.context() as patched:
        patched.setattr(Standing, "check", no_answer_at_last)
        peer.send(BaseCommand.PRODUCER, "producer", request_id=1, **asked)
        secured.until(lambda: peer.count(BaseCommand.ERROR) == 1)
    peer.send(BaseCommand.PRODUCER, "producer", request_id=2, **asked)
    secured.until(lambda: peer.count(BaseCommand.PRODUCER_SUCCESS) + peer.count(BaseCommand.ERROR) == 2)
    assert peer.count(BaseCommand.PRODUCER_SUCCESS) == 1
