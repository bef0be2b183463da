"""Bookies and where they stand, over HTTP: answers are Apache Pulsar 4.0.8's."""

from __future__ import annotations

import json

from served import Served

from magnetar.metadata.interface import Node

RACKS = "/admin/v2/bookies/racks-info"
ONE = f"{RACKS}/127.0.0.1:3181"


def answer(served: Served, method: str, path: str, body: str = "") -> tuple[int, str]:
    path, _, group = path.partition("?group=")
    response = served.ask(method, path, body, {"group": group} if group else {})
    return response.status, json.loads(response.body)["reason"] if response.status >= 400 else ""


def test_racks_come_move_and_go() -> None:
    served = Served()
    missing = "Bookie rack placement configuration not found: 127.0.0.1:3181"
    assert served.get(RACKS) == {}
    assert answer(served, "GET", ONE) == (404, missing)
    assert answer(served, "DELETE", ONE) == (404, missing)
    assert answer(served, "POST", f"{ONE}?group=g1", '{"rack": "/r1", "hostname": "h"}') == (204, "")
    assert served.get(ONE) == {"rack": "/r1", "hostname": "h"}
    assert answer(served, "POST", f"{ONE}?group=g2", '{"rack": "r2", "other": 1}') == (204, "")
    assert answer(served, "POST", f"{RACKS}/x:1?group=g2", '{"hostname": "h"}') == (204, "")
    assert served.get(RACKS) == {"g2": {"127.0.0.1:3181": {"rack": "r2"}, "x:1": {"hostname": "h"}}}
    assert answer(served, "DELETE", f"{RACKS}/x:1") == (204, "")
    assert answer(served, "DELETE", ONE) == (204, "")
    assert served.get(RACKS) == {}


def test_what_is_no_place_is_refused() -> None:
    served = Served()
    assert answer(served, "POST", ONE, '{"rack": "/r1"}') == (412, "Bookie 'group' parameters is missing")
    status, reason = answer(served, "POST", f"{ONE}?group=g", '{"rack": "/a/b/c"}')
    assert (status, reason[:35]) == (412, "Bookie 'rack' parameter is invalid:")
    for rack in ("/", "", "/a/b", "a/b/"):
        assert answer(served, "POST", f"{ONE}?group=g", json.dumps({"rack": rack})) == (204, "")
    for body in ("[]", "", '{"rack": [1]}', "{"):
        assert answer(served, "POST", f"{ONE}?group=g", body)[0] == 400


def test_bookies_are_listed() -> None:
    served = Served()
    assert served.get("/admin/v2/bookies/all") == {"bookies": []}
    served.bookies = ["b1:3181", "b2:3181"]
    assert served.get("/admin/v2/bookies/all") == {
        "bookies": [{"bookieId": "b1:3181"}, {"bookieId": "b2:3181"}]
    }


def test_a_damaged_table_is_said_to_be_and_left_as_it_is() -> None:
    served = Served()
    for damaged in (b"[]", b'{"g":1}', b"{"):
        node: Node = served.world.run(served.world.metadata.put("/bookies", damaged))
        assert served.ask("GET", RACKS, "").status == 500
        assert answer(served, "POST", f"{ONE}?group=g", '{"rack": "/r"}')[0] == 500
        assert served.world.run(served.world.metadata.get("/bookies")) == node
