"""``bindAddresses`` and ``advertisedListeners``: who is told which address (PIP-61, PIP-95)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ports import free_port
from raw_client import Client
from server import Server

from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandLookupTopicResponse


@pytest.fixture(scope="module")
def outer() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server], outer: int) -> Server:
    return start_server(
        bindAddresses=f"outside:pulsar://127.0.0.1:{outer}",
        advertisedListeners=(
            "inside:pulsar://broker.local:6650,inside:http://broker.local:8080,"
            "outside:pulsar://broker.example.org:7650,outside:pulsar+ssl://broker.example.org:7651"
        ),
        internalListenerName="inside",
    )


def look_up(port: int, listener: str = "") -> CommandLookupTopicResponse:
    client = Client(port)
    fields = {"advertised_listener_name": listener} if listener else {}
    topic = "persistent://public/default/t"
    answer: CommandLookupTopicResponse = client.ask(
        BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=topic, **fields
    )
    client.close()
    return answer


def test_clients_that_name_no_listener_get_the_one_of_the_bind_address(server: Server, outer: int) -> None:
    inside, outside = look_up(server.port), look_up(outer)
    assert inside.brokerServiceUrl == "pulsar://broker.local:6650"
    assert not inside.brokerServiceUrlTls
    assert outside.brokerServiceUrl == "pulsar://broker.example.org:7650"
    assert outside.brokerServiceUrlTls == "pulsar+ssl://broker.example.org:7651"


def test_who_names_one_is_told_that(server: Server, outer: int) -> None:
    assert look_up(server.port, "outside").brokerServiceUrl == "pulsar://broker.example.org:7650"
    assert look_up(outer, "inside").brokerServiceUrl == "pulsar://broker.local:6650"
    unknown = look_up(server.port, "nowhere")
    assert unknown.response == CommandLookupTopicResponse.Failed
    assert "nowhere" in unknown.message


def test_http_tells_the_same(server: Server) -> None:
    path = "/lookup/v2/topic/persistent/public/default/t"
    status, inside = server.ask("GET", path)
    assert status == 200
    assert "broker.local:6650" in str(inside)
    assert "http://broker.local:8080" in str(inside)
    assert "broker.example.org:7651" in server.ask("GET", f"{path}?listenerName=outside")[1].decode()
