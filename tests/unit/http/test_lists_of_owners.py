"""Lists of non-persistent topics: each broker tells of its own bundles, and any broker of all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from served import Served

from magnetar.broker.admin.namespaces import NamespaceAdmin
from magnetar.broker.ownership.brokers import VERSION_PREFIX, BrokerRecord
from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Owner
from magnetar.broker.ownership.peers import PeerAnswer, PeerRefused
from magnetar.errors import ServiceNotReady
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

LIST = "/admin/v2/non-persistent/public/default"
LOWEST, SECOND, THIRD, HIGHEST = (
    "0x00000000_0x40000000",
    "0x40000000_0x80000000",
    "0x80000000_0xc0000000",
    "0xc0000000_0xffffffff",
)


class Others:
    """The lowest bundle is this broker's, nobody has the highest, another broker has the rest."""

    def __init__(self) -> None:
        self.brokers = self.admin = self
        self.asked: list[str] = []
        self.answers: dict[str, bytes] = {}
        self.version = f"{VERSION_PREFIX}0.1.0"

    def get(self, broker_id: str) -> BrokerRecord:
        return BrokerRecord(
            broker_id, Addresses(None, http="http://other:8080"), {}, True, True, "", self.version, 0, {}
        )

    async def owner_of(self, bundle: Bundle, asked: Asked, *, persistent: bool = True) -> Owner:
        assert asked is Asked.LOOK
        if str(bundle.range) == HIGHEST:
            raise ServiceNotReady("nobody")
        here = str(bundle.range) == LOWEST
        return Owner("own:8080" if here else "other:8080", Addresses(None, http="http://other:8080"), here, 1)

    async def call(
        self,
        broker: BrokerRecord,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> PeerAnswer:
        assert (broker.broker_id, method) == ("other:8080", "GET" if "/non-persistent/" in path else "PUT")
        self.asked.append(path)
        answer = self.answers.get(path.rpartition("/")[2], b"")
        if answer == b"refused":
            raise PeerRefused(500, "out of order")
        return PeerAnswer(200 if answer else 204, answer)


@pytest.fixture
def others() -> Others:
    return Others()


@pytest.fixture
def served(others: Others, monkeypatch: pytest.MonkeyPatch) -> Served:
    found = Served()
    for local in ("a", "b", "c", "d", "e", "f", "__own"):
        name = TopicName.parse(f"non-persistent://public/default/{local}")
        found.world.run(found.broker.topics.load(name, create=True))
    monkeypatch.setattr(found.broker, "beside", others)
    monkeypatch.setattr(found.broker.ownership, "owner_of", others.owner_of)
    return found


def lowest(served: Served) -> list[str]:
    """What is loaded here of the lowest bundle."""
    names = [TopicName.parse(name) for name in served.broker.topics.loaded]
    return sorted(str(each) for each in names if not each.persistent and each.bundle_hash < 0x40000000)


def test_it_has_what_each_owner_tells_of_its_bundles(served: Served, others: Others) -> None:
    there = ["non-persistent://public/default/x", "persistent://public/default/y"]
    others.answers[SECOND] = json.dumps(there).encode()
    own = [name for name in lowest(served) if "/__" not in name]
    assert own
    assert served.get(LIST) == sorted([*own, "non-persistent://public/default/x"])
    assert sorted(others.asked) == [f"{LIST}/{SECOND}", f"{LIST}/{THIRD}"]


def test_the_systems_own_are_told_of_where_they_are_asked_for(served: Served, others: Others) -> None:
    others.answers[THIRD] = b'["non-persistent://public/default/__there"]'
    without: Any = served.get(LIST)
    asked = served.ask("GET", LIST, query={"includeSystemTopic": "true"})
    assert set(json.loads(asked.body)) - set(without) >= {"non-persistent://public/default/__there"}
    assert "non-persistent://public/default/__there" not in without


@pytest.mark.parametrize(
    ("answer", "status"), [(b"refused", 500), (b"{}", 503), (b"[1]", 503), (b"<html>", 503)]
)
def test_a_list_that_would_lack_something_is_none(
    served: Served, others: Others, answer: bytes, status: int
) -> None:
    others.answers[SECOND] = answer
    assert served.ask("GET", LIST).status == status


def test_a_bundle_is_told_of_by_its_owner(served: Served) -> None:
    assert served.get(f"{LIST}/{LOWEST}") == lowest(served)
    answer = served.ask("GET", f"{LIST}/{SECOND}")
    assert answer.status == 307
    assert dict(answer.headers)["Location"].startswith(f"http://other:8080{LIST}/{SECOND}")
    assert served.ask("GET", f"{LIST}/{HIGHEST}").status == 204
    assert served.ask("GET", f"{LIST}/0x00000000_0x40000001").status == 412
    assert served.ask("GET", "/admin/v2/non-persistent/public/nowhere/0x00000000_0x40000000").status == 404


def test_namespaces_of_the_older_form_have_addresses_of_their_own(served: Served) -> None:
    assert served.ask("GET", "/admin/non-persistent/sample/standalone/ns1").status == 200
    answer = served.ask("GET", "/admin/non-persistent/sample/standalone/ns1/0x00000000_0x40000000")
    assert answer.status == 200


def test_a_broker_that_is_alone_tells_of_all(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.broker, "beside", None)
    assert len(served.get(LIST)) == 6


NAMESPACE = "/admin/v2/namespaces/mine/n"
MINE = "/admin/v2/non-persistent/mine/n"


@pytest.fixture
def mine(others: Others, monkeypatch: pytest.MonkeyPatch) -> Served:
    found = Served()
    found.ask("PUT", "/admin/v2/tenants/mine", '{"allowedClusters": ["standalone"]}')
    assert found.ask("PUT", NAMESPACE, "{}").status == 204
    monkeypatch.setattr(found.broker, "beside", others)
    monkeypatch.setattr(found.broker.ownership, "owner_of", others.owner_of)
    return found


def test_a_namespace_whose_non_persistent_topics_another_broker_serves_is_not_empty(
    mine: Served, others: Others
) -> None:
    others.answers[THIRD] = b'["non-persistent://mine/n/t"]'
    answer = mine.ask("DELETE", NAMESPACE)
    assert answer.status == 409
    assert mine.get(NAMESPACE)["deleted"] is False
    del others.answers[THIRD]
    assert mine.ask("DELETE", NAMESPACE).status == 204


def test_a_topic_that_another_broker_loads_before_it_sees_the_mark_keeps_the_namespace(
    mine: Served, others: Others, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = NamespaceAdmin._mark

    async def late(admin: NamespaceAdmin, name: NamespaceName, *, deleted: bool) -> None:
        others.answers[SECOND] = b'["non-persistent://mine/n/late"]'
        await mark(admin, name, deleted=deleted)

    monkeypatch.setattr(NamespaceAdmin, "_mark", late)
    assert mine.ask("DELETE", NAMESPACE).status == 409
    assert mine.get(NAMESPACE)["deleted"] is False


def test_a_namespace_is_not_deleted_while_an_owner_does_not_answer(mine: Served, others: Others) -> None:
    others.answers[SECOND] = b"refused"
    assert mine.ask("DELETE", NAMESPACE).status == 500
    assert mine.get(NAMESPACE)["deleted"] is False


def test_brokers_of_apache_are_asked_before_the_mark_only(mine: Served, others: Others) -> None:
    others.version = "4.0.8"
    assert mine.ask("DELETE", NAMESPACE).status == 204
    lists = [path for path in others.asked if path.startswith(MINE)]
    assert sorted(lists) == [f"{MINE}/{SECOND}", f"{MINE}/{THIRD}"]
