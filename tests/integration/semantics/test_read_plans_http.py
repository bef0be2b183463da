"""Read plans over HTTP: what is asked, what is answered, what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from server import Server

from magnetar.client.blocking import Client

PLANS = "/admin/v2/magnetar/read-plans"


def _ask(server: Server, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    status, data = server.ask(method, PLANS + path, None if body is None else json.dumps(body))
    return status, json.loads(data) if data else None


def test_a_plan_is_made_prolonged_and_released(start_server: Callable[..., Server]) -> None:
    server = start_server(magnetarSegmentSizeBytes=65536)
    client = Client(server.url)
    client.subscribe("plans", "keep").close()
    producer = client.create_producer("plans")
    ids = [producer.send(bytes(5000)) for _ in range(60)]
    client.close()
    topic = "/persistent/public/default/plans"
    status, plan = _ask(server, "POST", topic)
    assert status == 200
    assert plan["seconds"] == 600
    ranges = plan["ranges"]
    assert ranges[0]["firstEntryId"] == 0
    assert all((server.folder / "data" / each["segmentFile"]).exists() for each in ranges)
    assert all((server.folder / "data" / each["indexFile"]).exists() for each in ranges)
    start, end = ids[3], ids[9]
    asked = {
        "start": {"ledgerId": start.ledger_id(), "entryId": start.entry_id()},
        "end": {"ledgerId": end.ledger_id(), "entryId": end.entry_id()},
        "seconds": 5,
    }
    status, part = _ask(server, "POST", topic, asked)
    assert status == 200
    assert part["ranges"][0]["firstEntryId"] == start.entry_id()
    assert part["ranges"][-1]["lastEntryId"] == end.entry_id() - 1
    assert _ask(server, "PUT", f"/{plan['id']}", {"seconds": 60}) == (200, {"id": plan["id"], "seconds": 60})
    assert _ask(server, "DELETE", f"/{plan['id']}") == (204, None)
    assert _ask(server, "PUT", f"/{plan['id']}", {"seconds": 60})[0] == 404


def test_what_cannot_be_is_refused(start_server: Callable[..., Server]) -> None:
    server = start_server(magnetarReadPlanMaxSeconds=30)
    assert server.ask("PUT", "/admin/v2/persistent/public/default/one")[0] == 204
    assert server.ask("PUT", "/admin/v2/persistent/public/default/many/partitions", "2")[0] == 204
    topic = "/persistent/public/default/one"
    assert _ask(server, "POST", topic)[1] | {"id": ""} == {"id": "", "seconds": 30, "ranges": []}
    refusals: list[tuple[int, str, Any]] = [
        (400, topic, {"seconds": 31}),
        (400, topic, {"seconds": 0}),
        (400, topic, {"seconds": "five"}),
        (400, topic, {"start": 5}),
        (400, topic, {"start": {"ledgerId": 1}}),
        (400, topic, {"begin": {}}),
        (400, topic, []),
        (404, "/persistent/public/default/nothing", {}),
        (405, "/persistent/public/default/many", {}),
    ]
    for status, path, body in refusals:
        got, reason = _ask(server, "POST", path, body)
        assert (got, bool(reason["reason"])) == (status, True), (path, body)
    off = start_server(magnetarReadPlanMaxSeconds=0)
    assert off.ask("PUT", "/admin/v2/persistent/public/default/one")[0] == 204
    assert _ask(off, "POST", topic)[0] == 501
