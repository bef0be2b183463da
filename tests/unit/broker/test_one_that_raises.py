"""A defect met while one of many is served is reported, and the others are served all the same."""

from __future__ import annotations

from typing import Any

import pytest
from peers import TOPIC, Brokers, send_frame
from simulated_io import SimulatedDisk, simulated_io

from magnetar.broker.connections.publishing import Publishing
from magnetar.broker.flow.limits import Readable
from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


class _Connection:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.read = 0

    def read_on(self) -> None:
        self.read += 1
        if self.error is not None:
            raise self.error


def reported(loop: Any, monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
    """What is reported from now on; the simulation would end with it."""
    found: list[Exception] = []
    monkeypatch.setattr(loop, "call_exception_handler", lambda context: found.append(context["exception"]))
    return found


def test_connections_behind_one_that_raises_are_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = simulated_io(1, SimulatedDisk(1)).loop
    found = reported(loop, monkeypatch)
    error = RuntimeError("a defect")
    connections = [_Connection(), _Connection(error), _Connection()]
    readable = Readable(loop)
    for connection in connections:
        readable.add(connection)  # type: ignore[arg-type]
    loop.run_for(0.1)
    assert [connection.read for connection in connections] == [1, 1, 1]
    assert found == [error]


def test_producers_behind_one_that_raises_get_their_receipts(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers()
    name = TOPIC.replace("persistent://", "non-persistent://", 1)
    first, second = brokers.publisher(name), brokers.publisher(name)
    found = reported(brokers.loop, monkeypatch)
    error = RuntimeError("a defect")

    passed = Publishing.on_passed

    def fail_first(
        publishing: Publishing, producer: Producer, publish: Publish, taken: int, size: int
    ) -> None:
        if publishing is first.connection.publishing:
            raise error
        passed(publishing, producer, publish, taken, size)

    monkeypatch.setattr(Publishing, "on_passed", fail_first)
    for peer in (first, second):
        peer.connection.data_received(send_frame(0))
    brokers.until(lambda: second.count(BaseCommand.SEND_RECEIPT) == 1)
    assert not first.count(BaseCommand.SEND_RECEIPT)
    assert found == [error]
