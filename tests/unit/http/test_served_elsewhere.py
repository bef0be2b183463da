"""What only the owner of a topic can do is asked of it."""

from __future__ import annotations

import pytest
from served import Served

from magnetar.broker.ownership.contract import Addresses, Bundle, Owner


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    found = Served()

    async def elsewhere(_bundle: Bundle) -> Owner:
        return Owner("other:8080", Addresses("pulsar://other:6650", http="http://other:8080"), False, 2)

    monkeypatch.setattr(found.broker.ownership, "owner_of", elsewhere)
    return found


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


def test_lookups_tell_where_to_ask(served: Served) -> None:
    answer = served.ask("GET", "/lookup/v2/topic/persistent/public/default/t")
    assert answer.status == 307
    assert dict(answer.headers)["Location"].startswith("http://other:8080/lookup/v2/topic/persistent/")


def test_what_any_broker_can_do_is_done_here(served: Served) -> None:
    assert served.ask("GET", "/admin/v2/persistent/public/default").status == 200
    assert served.ask("GET", "/admin/v2/namespaces/public/default").status == 200
    assert served.ask("GET", "/admin/v2/persistent/public/nowhere/t/stats").status == 404
