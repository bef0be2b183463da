"""Unloading a bundle towards a broker, asked of any broker: it ends at the owner, whichever kind that is."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from served import Served

from magnetar.broker.ownership.brokers import BrokerRecord
from magnetar.broker.ownership.contract import Addresses, Asked, Bundle, Owner
from magnetar.broker.ownership.peers import PeerAnswer, PeerRefused

PATH = "/admin/v2/namespaces/public/default/0x00000000_0x40000000/unload"
THERE = {"destinationBroker": "third:8080"}
APACHE = "4.0.8"


def record(name: str, version: str) -> BrokerRecord:
    addresses = Addresses(f"pulsar://{name}:6650", http=f"http://{name}:8080")
    return BrokerRecord(f"{name}:8080", addresses, {}, True, True, "", version, 0, {})


class Beside:
    """The brokers beside this one, and what is said to them."""

    def __init__(self, served: Served, leader: str, owner: str, owner_version: str) -> None:
        self.all = {
            each.broker_id: each for each in (record("owner", owner_version), record("third", APACHE))
        }
        self.all["leader:8080"] = record("leader", APACHE)
        self.brokers = self.leadership = self.placement = self.admin = self
        self.is_leader = leader == "own"
        self.preferred: list[tuple[str, str]] = []
        self.asked: list[Any] = []
        self.unloaded: list[tuple[str, str | None]] = []
        self._leader, self._owner = leader, owner
        served.broker.beside = self  # type: ignore[assignment]

    def get(self, broker_id: str) -> BrokerRecord | None:
        return self.all.get(broker_id)

    def leader(self) -> BrokerRecord | None:
        return None if self.is_leader else self.all["leader:8080"]

    def prefer(self, bundle: Bundle, broker_id: str, *, owned: bool) -> None:
        assert owned
        self.preferred.append((str(bundle), broker_id))

    async def owner_of(self, _bundle: Bundle, _asked: Asked, *, persistent: bool = True) -> Owner:
        told = Addresses("pulsar://owner:6650", http="http://owner:8080")
        return Owner(f"{self._owner}:8080", told, self._owner == "own", 1)

    async def unload(self, bundle: Bundle, towards: str | None = None) -> None:
        self.unloaded.append((str(bundle), towards))

    async def call(
        self,
        broker: BrokerRecord,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> PeerAnswer:
        self.asked.append((broker.broker_id, method, path, query))
        raise PeerRefused(307, "it is served elsewhere")


def beside(
    monkeypatch: pytest.MonkeyPatch, leader: str, owner: str, version: str = APACHE
) -> tuple[Served, Beside]:
    served = Served()
    found = Beside(served, leader, owner, version)
    monkeypatch.setattr(served.broker.ownership, "owner_of", found.owner_of)
    monkeypatch.setattr(served.broker.topics, "unloads", SimpleNamespace(unload=found.unload))
    return served, found


def redirect(served: Served) -> tuple[str, dict[str, str]]:
    answer = served.ask("PUT", PATH, query=THERE)
    assert answer.status == 307
    location = urlsplit(dict(answer.headers)["Location"])
    assert location.path == PATH
    return location.netloc, dict(parse_qsl(location.query))


def test_the_leader_notes_the_destination_and_names_it_to_no_owner_of_apaches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    served, others = beside(monkeypatch, "own", "owner")
    assert redirect(served) == ("owner:8080", {"authoritative": "true"})
    assert others.preferred == [("public/default/0x00000000_0x40000000", "third:8080")]


def test_the_leader_names_it_to_an_owner_of_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    served, others = beside(monkeypatch, "own", "owner", "magnetar-1.0")
    assert redirect(served) == ("owner:8080", {**THERE, "authoritative": "true"})
    assert len(others.preferred) == 1


def test_who_does_not_lead_leaves_the_destination_to_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    served, others = beside(monkeypatch, "leader", "owner")
    # An owner of Apache's sends whoever asks to the leader, which sends it back without a destination.
    assert redirect(served) == ("owner:8080", {**THERE, "authoritative": "true"})
    assert not others.asked


def test_the_owner_tells_the_leader_and_its_own_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    served, others = beside(monkeypatch, "leader", "own")
    assert served.ask("PUT", PATH, query=THERE).status == 204
    assert others.asked == [("leader:8080", "PUT", PATH, THERE)]
    assert others.unloaded == [("public/default/0x00000000_0x40000000", "third:8080")]


def test_a_broker_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    served, others = beside(monkeypatch, "own", "own")
    assert served.ask("PUT", PATH, query={"destinationBroker": "gone:8080"}).status == 405
    assert not others.unloaded
