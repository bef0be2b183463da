"""What only the owner of a topic can do is asked of it."""

from __future__ import annotations

import json

import pytest
from served import Served

from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Owner
from magnetar.broker.stats.topic_board import TopicBoard


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    found = Served()
    settle(found, monkeypatch, settled=True)
    return found


def settle(served: Served, monkeypatch: pytest.MonkeyPatch, *, settled: bool) -> None:
    async def elsewhere(_bundle: Bundle, _asked: Asked, *, persistent: bool = True) -> Owner:
        told = Addresses("pulsar://other:6650", http="http://other:8080", http_tls="https://other:8443")
        return Owner("other:8080", told, False, 2, settled=settled, authoritative=settled)

    monkeypatch.setattr(served.broker.ownership, "owner_of", elsewhere)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/admin/v2/persistent/public/default/t/stats"),
        ("DELETE", "/admin/v2/persistent/public/default/t/subscription/s"),
        ("PUT", "/admin/v2/persistent/public/default/t%20u/unload"),
    ],
)
def test_requests_are_sent_on_with_all_they_ask(served: Served, method: str, path: str) -> None:
    answer = served.ask(method, path, query={"force": "true"})
    assert answer.status == 307
    assert dict(answer.headers)["Location"] == f"http://other:8080{path}?force=true&authoritative=true"


def test_who_came_by_tls_is_sent_on_by_tls(served: Served) -> None:
    answer = served.ask("GET", "/admin/v2/persistent/public/default/t/stats", secure=True)
    assert dict(answer.headers)["Location"].startswith("https://other:8443/admin/")


def test_lookups_tell_where_to_ask(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/lookup/v2/topic/persistent/public/default/t"
    known = served.ask("GET", path)
    assert known.status == 200
    assert json.loads(known.body)["brokerUrl"] == "pulsar://other:6650"
    settle(served, monkeypatch, settled=False)
    answer = served.ask("GET", path, query={"listenerName": "x"})
    assert answer.status == 307
    expected = f"http://other:8080{path}?listenerName=x&authoritative=false"
    assert dict(answer.headers)["Location"] == expected


def test_what_any_broker_can_do_is_done_here(served: Served) -> None:
    assert served.ask("GET", "/admin/v2/persistent/public/default").status == 200
    assert served.ask("GET", "/admin/v2/namespaces/public/default").status == 200
    assert served.ask("GET", "/admin/v2/persistent/public/nowhere/t/stats").status == 404


def test_a_page_is_told_where_a_topic_is_and_not_sent_on(served: Served) -> None:
    served.watched_by(TopicBoard(served.broker))
    for secure, url in ((False, "http://other:8080"), (True, "https://other:8443")):
        answer = served.ask("GET", "/dashboard/events/topic/persistent/public/default/t", secure=secure)
        assert (answer.status, json.loads(answer.body)["url"]) == (421, url)
