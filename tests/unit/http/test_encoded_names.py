"""Names of topics and subscriptions in paths: encoded as Apache Pulsar's clients do it, and as others do."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from served import Served

from magnetar.http.endpoints.websocket import WEBSOCKET
from magnetar.http.routing import Found, Router
from magnetar.naming.topic_name import subscription_piece

ROOT = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


def test_names_that_the_java_client_has_encoded(served: Served) -> None:
    # As Apache Pulsar 4.0.8's own pulsar-admin has sent them.
    assert served.ask("PUT", f"{ROOT}/j+k%2Bl").status == 204
    assert served.ask("PUT", f"{ROOT}/j+k%2Bl/subscription/s%252B1%252Fx%2By").status == 204
    assert "persistent://public/default/j k+l" in served.get(ROOT)
    assert served.get(f"{ROOT}/j%20k%2Bl/subscriptions") == ["s+1/x y"]
    assert served.ask("DELETE", f"{ROOT}/j+k%2Bl/subscription/s%252B1%252Fx%2By").status == 204
    assert served.ask("DELETE", f"{ROOT}/j+k%2Bl").status == 204


@pytest.mark.parametrize("name", ["a b", "a+b", "a%b", "a%2Bb", "ä€😀", "a/b", "%", "~*-._"])
def test_any_name_goes_there_and_back(served: Served, name: str) -> None:
    topic = f"{ROOT}/{quote(name.replace('/', '|'), safe='')}"
    assert served.ask("PUT", topic).status == 204
    assert served.ask("PUT", f"{topic}/subscription/{subscription_piece(name)}").status == 204
    assert served.get(f"{topic}/subscriptions") == [name]
    assert served.ask("DELETE", topic).status == 204


@pytest.mark.parametrize("piece", ["a%2Fb", "%C3%A4", "50%25"])
def test_a_subscription_that_is_encoded_once_is_found_too(served: Served, piece: str) -> None:
    assert served.ask("PUT", f"{ROOT}/once").status == 204
    assert served.ask("PUT", f"{ROOT}/once/subscription/{piece}").status == 204
    [name] = served.get(f"{ROOT}/once/subscriptions")
    assert quote(name, safe="") == piece
    assert served.ask("DELETE", f"{ROOT}/once").status == 204


def test_websockets_have_both_encoded_once() -> None:
    path = "/ws/v2/consumer/persistent/public/default/j+k/s%2B1%2Fx%252F"
    found = Router(WEBSOCKET).find("GET", path)
    assert isinstance(found, Found)
    assert (found.variables["topic"], found.variables["subscription"]) == ("j k", "s+1/x%2F")
