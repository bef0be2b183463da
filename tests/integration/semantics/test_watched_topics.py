"""Watching which topics there are, frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from raw_client import Client, Refused
from server import Server

from magnetar.errors import ServerErrorCode
from magnetar.naming.hashes import topic_list_hash
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_prefixes = count()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    made = Client(server.port)
    yield made
    made.close()


@pytest.fixture
def full() -> Callable[[str], str]:
    """Full names of topics nobody else uses."""
    prefix = f"w{next(_prefixes)}x"
    return lambda local: f"persistent://public/default/{prefix}{local}"


def watch(client: Client, pattern: str, watcher_id: int = 1, **fields: Any) -> Any:
    fields = {"namespace": "public/default"} | fields
    return client.ask(
        BaseCommand.WATCH_TOPIC_LIST,
        BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        watcher_id=watcher_id,
        topics_pattern=pattern,
        **fields,
    )


def test_topics_that_come_and_go(client: Client, server: Server, full: Callable[[str], str]) -> None:
    client.produce(full("a"))
    client.produce(full("other"))
    found = watch(client, full("[ab]"))
    assert list(found.topic) == [full("a")]
    assert found.topics_hash == topic_list_hash([full("a")])
    assert found.watcher_id == 1
    assert not watch(client, full("[ab]"), 2, topics_hash=found.topics_hash).topic
    client.produce(full("b"))
    for watcher_id in (1, 2):
        update = client.take(BaseCommand.WATCH_TOPIC_UPDATE, watcher_id=watcher_id)
        assert list(update.new_topics) == [full("b")]
        assert update.topics_hash == topic_list_hash([full("a"), full("b")])
    client.ask(BaseCommand.WATCH_TOPIC_LIST_CLOSE, BaseCommand.SUCCESS, watcher_id=2)
    client.ask(BaseCommand.WATCH_TOPIC_LIST_CLOSE, BaseCommand.SUCCESS, watcher_id=2)
    path = full("a").replace("://", "/")
    assert server.ask("DELETE", f"/admin/v2/{path}?force=true")[0] == 204
    update = client.take(BaseCommand.WATCH_TOPIC_UPDATE, watcher_id=1)
    assert (list(update.new_topics), list(update.deleted_topics)) == ([], [full("a")])
    client.barrier()
    assert not client.count_kept(BaseCommand.WATCH_TOPIC_UPDATE)


def test_partitions_are_told_one_by_one(client: Client, server: Server, full: Callable[[str], str]) -> None:
    watch(client, full("p"))
    path = full("p").replace("://", "/")
    assert server.ask("PUT", f"/admin/v2/{path}/partitions", "2")[0] == 204
    told: list[str] = []
    while len(told) < 2:
        told += client.take(BaseCommand.WATCH_TOPIC_UPDATE).new_topics
    assert sorted(told) == [full("p-partition-0"), full("p-partition-1")]


def test_watchers_go_with_their_connection(
    client: Client, server: Server, full: Callable[[str], str]
) -> None:
    other = Client(server.port)
    watch(other, full(".*"))
    other.close()
    watch(client, full(".*"))
    client.produce(full("a"))
    client.take(BaseCommand.WATCH_TOPIC_UPDATE)


@pytest.mark.parametrize(
    ("pattern", "namespace", "code"),
    [
        ("a" * 51, "public/default", ServerErrorCode.NOT_ALLOWED),
        ("a([", "public/default", ServerErrorCode.NOT_ALLOWED),
        ("(?!a).*", "public/default", ServerErrorCode.NOT_ALLOWED),
        ("a", "a/b/c/d", ServerErrorCode.INVALID_TOPIC_NAME),
    ],
)
def test_what_is_refused(client: Client, pattern: str, namespace: str, code: ServerErrorCode) -> None:
    with pytest.raises(Refused) as refused:
        watch(client, pattern, namespace=namespace)
    assert refused.value.code == code
    client.barrier()


def test_a_namespace_that_is_not_there_has_no_topics(client: Client) -> None:
    found = watch(client, ".*", namespace="public/nowhere")
    assert (list(found.topic), found.topics_hash) == ([], "00000000")


def test_watching_can_be_switched_off(start_server) -> None:  # type: ignore[no-untyped-def]
    server = start_server(enableBrokerSideSubscriptionPatternEvaluation="false")
    client = Client(server.port)
    assert not client.connected.feature_flags.supports_topic_watchers
    with pytest.raises(Refused) as refused:
        watch(client, "a")
    assert refused.value.code == ServerErrorCode.NOT_ALLOWED
    client.produce("a")
    answer = client.ask(
        BaseCommand.GET_TOPICS_OF_NAMESPACE,
        BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE,
        namespace="public/default",
        topics_pattern="public/default/b",
    )
    assert not answer.filtered
    assert list(answer.topics) == ["persistent://public/default/a"]
    client.close()
