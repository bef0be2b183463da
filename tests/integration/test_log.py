"""The log of a server tells who and what came and went."""

from __future__ import annotations

import pytest
from raw_client import Client, Refused
from server import Server

SHARED = 1


def told(server: Server, text: str, *fields: str) -> list[str]:
    """Lines of the log with a text and all of these fields."""
    lines = [line for line in server.log.splitlines() if f" {text} " in line]
    return [line for line in lines if all(field in line for field in fields)]


def test_topics_producers_consumers_and_subscriptions_have_a_line_each(start_server) -> None:  # type: ignore[no-untyped-def]
    server: Server = start_server()
    client = Client(server.port, client_version="raw 1.0")
    topic = "persistent://public/default/told"
    producer, _ = client.produce(topic, producer_name="p")
    consumer = client.subscribe(topic, "s", SHARED, consumer_name="c")
    where = f"topic={topic}"
    assert len(told(server, "topic created", where)) == 1
    assert (
        len(told(server, "producer opened", where, "producer=p", "peer=127.0.0.1:", 'client="raw 1.0"')) == 1
    )
    assert len(told(server, "subscription created", where, "subscription=s", "durable=True")) == 1
    assert len(told(server, "consumer opened", where, "subscription=s", "type=Shared", "consumer=c")) == 1
    client.close_producer(producer)
    client.close_consumer(consumer)
    assert len(told(server, "producer closed", where, "producer=p")) == 1
    assert len(told(server, "consumer closed", where, "consumer=c")) == 1
    status, _ = server.ask("DELETE", "/admin/v2/persistent/public/default/told/subscription/s")
    assert status == 204
    assert len(told(server, "subscription deleted", where, "subscription=s")) == 1
    assert server.ask("PUT", "/admin/v2/persistent/public/default/told/unload")[0] == 204
    assert len(told(server, "topic closed", where)) == 1
    assert server.ask("DELETE", "/admin/v2/persistent/public/default/told")[0] == 204
    assert len(told(server, "topic deleted", where)) == 1


def test_refusals_have_a_line_with_the_reason(start_server) -> None:  # type: ignore[no-untyped-def]
    server: Server = start_server()
    client = Client(server.port)
    with pytest.raises(Refused):
        client.produce("persistent://public/nowhere/t")
    assert (
        len(told(server, "request refused", "request=producer", "peer=127.0.0.1:", "Namespace not found"))
        == 1
    )
    status, _ = server.ask("PUT", "/admin/v2/tenants/told", '{"allowedClusters": ["standalone"]}')
    assert status == 204
    assert len([line for line in server.log.splitlines() if "create_tenant" in line]) == 1
