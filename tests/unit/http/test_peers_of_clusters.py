"""Peers of a cluster: others that exist, whatever a request calls them."""

from __future__ import annotations

import json

import pytest
from served import Served

ROOT = "/admin/v2/clusters"


@pytest.fixture
def served() -> Served:
    found = Served()
    for name in ("us-west", "us-east"):
        assert found.ask("PUT", f"{ROOT}/{name}", json.dumps({"serviceUrl": "http://x:8080"})).status == 200
    return found


def test_peers_are_set_and_told(served: Served) -> None:
    assert served.ask("POST", f"{ROOT}/us-west/peers", '["us-east"]').status == 204
    assert served.get(f"{ROOT}/us-west/peers") == ["us-east"]


@pytest.mark.parametrize("peer", ["nowhere", "us-west", "", ".", "..", "a/b", "a" * 5000, "\x00"])
def test_what_is_no_other_cluster_is_refused(served: Served, peer: str) -> None:
    assert served.ask("POST", f"{ROOT}/us-west/peers", json.dumps([peer])).status == 412
