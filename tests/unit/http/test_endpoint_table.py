"""The table of endpoints says what is true: each row is asked of a broker, and compared with what it says."""

from __future__ import annotations

import inspect
import json
import logging
from typing import Any

import pytest
from endpoint_bodies import BODIES, NAMES
from served import Served

from magnetar.errors import AuthorizationFailure
from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.engine.message import Request, Response
from magnetar.http.routing import Access, Endpoint, Found, Router, resource_of
from magnetar.security import authorization
from magnetar.security.authentication import Claim, Principal
from magnetar.security.authorization import Operation, Resource, Target

_LEFT_ASIDE = {"getPreciseBacklog", "authoritative"}
"""Parameters that change nothing: every backlog is precise, and no other broker is asked."""


class Query(dict[str, str]):
    """Remembers which parameters somebody looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.looked_at: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.looked_at.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.looked_at.add(key)
        return super().__getitem__(key)


def path_of(pattern: str) -> str:
    return "/".join(NAMES[piece[1:-1]] if piece.startswith("{") else piece for piece in pattern.split("/"))


def ids(row: Endpoint) -> str:
    return f"{row.method} {row.path}"


def request_of(row: Endpoint, query: Query) -> Request:
    body = json.dumps(BODIES[row.body]) if row.body else ""
    headers = {"content-type": "application/json"}
    return Request(row.method, path_of(row.path), query, headers, body.encode())


@pytest.fixture(scope="module")
def world() -> Served:
    return Served(transactions=True)


def test_every_row_says_what_it_is() -> None:
    kinds = {
        authorization.ClusterOperation: {Resource.NONE, Resource.CLUSTER},
        authorization.BrokerOperation: {Resource.BROKER, Resource.CLUSTER},
        authorization.TenantOperation: {Resource.NONE, Resource.TENANT},
        authorization.NamespaceOperation: {Resource.NAMESPACE},
        authorization.TopicOperation: {Resource.TOPIC, Resource.SUBSCRIPTION, Resource.READ_PLAN},
        authorization.PolicyOperation: {Resource.NAMESPACE, Resource.TOPIC, Resource.SUBSCRIPTION},
    }
    for row in ENDPOINTS:
        if row.path.startswith("/admin/namespaces/"):
            # Legacy namespaces of one cluster: the path of version 2 has no such list.
            assert row.operation is authorization.TenantOperation.LIST_NAMESPACES
            continue
        # What it is asked of may be in the query.
        assert row.resource in kinds[type(row.operation)] or row.lets_in, ids(row)
        assert row.description
        assert inspect.iscoroutinefunction(row.handler)
        assert row.body in BODIES


def test_resources_are_what_paths_name() -> None:
    assert resource_of("/admin/v2/clusters") is Resource.NONE
    assert resource_of("/admin/v2/brokers/health") is Resource.BROKER
    assert resource_of("/admin/v2/tenants/{tenant}") is Resource.TENANT
    namespace = "/admin/v2/namespaces/{tenant}/{namespace}"
    assert resource_of(f"{namespace}/unsubscribe/{{subscription}}") is Resource.NAMESPACE
    topic = "/admin/v2/persistent/{tenant}/{namespace}/{topic}"
    assert resource_of(topic) is Resource.TOPIC
    assert resource_of(f"{topic}/subscription/{{subscription}}") is Resource.SUBSCRIPTION


def test_no_two_rows_clash() -> None:
    router = Router(ENDPOINTS)
    with pytest.raises(ValueError, match="two endpoints for GET /metrics"):
        Router([*ENDPOINTS, next(row for row in ENDPOINTS if row.path == "/metrics")])
    for row in ENDPOINTS:
        for pattern in (row.path, *row.aliases):
            found = router.find(row.method, path_of(pattern))
            assert isinstance(found, Found), pattern
            assert found.endpoint is row, pattern


@pytest.mark.parametrize("row", ENDPOINTS, ids=ids)
def test_a_row_answers_as_it_says_and_looks_at_what_it_names(world: Served, row: Endpoint) -> None:
    _stand(world, row)
    query = Query()
    response = world.world.run(world.http.answer(request_of(row, query)))
    assert response.status in row.answers, response.body
    assert response.status != 500, response.body
    if response.status < 300:
        assert query.looked_at | _LEFT_ASIDE == _LEFT_ASIDE | {parameter.name for parameter in row.parameters}


_SHOWN = {
    "/admin/v3/transactions/transactionCoordinator/replicas": (
        "/admin/v2/persistent/pulsar/system/transaction_coordinator_assign/partitions"
    )
}
"""Where else a number is seen that was set."""
_NUMBERS = [row for row in ENDPOINTS if row.body in ("int", "long")]


@pytest.mark.parametrize("row", _NUMBERS, ids=ids)
def test_a_number_may_be_sent_as_a_json_text(row: Endpoint) -> None:
    """As Apache Pulsar takes it; its client in Rust sends the number of partitions so."""
    world = Served(transactions=True)
    _stand(world, row)

    def status(body: str) -> int:
        asked = Request(
            row.method, path_of(row.path), {}, {"content-type": "application/json"}, body.encode()
        )
        return world.world.run(world.http.answer(asked)).status

    as_text = status('"3"')
    if as_text >= 400:
        # It is left out (501), the topic is not there, or has no partitions or as many already.
        assert as_text == status("3")
        assert as_text in (404, 409, 501)
        return
    shown = _SHOWN.get(row.path) or path_of(row.path)
    assert b"3" in world.ask("GET", shown).body
    assert status('"three"') == 400


def _stand(world: Served, row: Endpoint) -> None:
    """Whatever an earlier row took away is there again."""
    if row.resource in (Resource.TOPIC, Resource.SUBSCRIPTION):
        base = path_of(
            row.path.partition("/{topic}")[0].replace("/admin/v2/magnetar/read-plans", "/admin/v2")
        )
        if base.startswith("/admin/v2/persistent/"):
            world.ask("PUT", f"{base}/t")
            world.ask("PUT", f"{base}/t/subscription/s")


class Knows:
    """Everybody is who they say."""

    asks = True
    authentication_counts = ()

    async def authenticate(self, claim: Claim) -> Principal:
        return Principal(claim.credentials[0].data.decode(), "token")

    def listen(self, changed: Any) -> None:
        """It never changes its mind."""

    async def close(self) -> None:
        """It holds nothing."""


class Refuses:
    """Nobody may do anything."""

    asks = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        self.asked.append((principal.role, str(operation), str(target)))
        return "not you"

    def listen(self, changed: Any) -> None:
        """It never changes its mind."""


def ask_as(world: Served, role: str, method: str, path: str, body: bytes = b"") -> Response:
    headers = {"authorization": f"Bearer {role}"}
    answer: Response = world.world.run(world.http.answer(Request(method, path, headers=headers, body=body)))
    return answer


def test_who_asks_is_logged_with_what_was_changed(world: Served, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    path = "/admin/v2/namespaces/public/default/messageTTL"
    with world.access(Access(Knows())):
        for method, body in (("GET", b""), ("POST", b"60"), ("POST", b"-1")):
            ask_as(world, "admin", method, path, body)
    lines = [vars(record) for record in caplog.records if record.name == "magnetar.audit"]
    assert [(line["message"], line["status"]) for line in lines] == [("done", 204), ("refused", 412)]
    assert {(line["role"], line["operation"], line["path"]) for line in lines} == {
        ("admin", "write policy ttl", path)
    }


class Fails(Knows):
    """Somebody who may not speak for others, and a provider with a defect."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def authenticate(self, claim: Claim) -> Principal:
        raise self.error


def test_whoever_may_not_speak_for_somebody_is_answered_as_who_may_not_ask(world: Served) -> None:
    with world.access(Access(Fails(AuthorizationFailure("no proxy")))):
        for path, status in (
            ("/admin/v2/clusters/standalone", 401),
            ("/admin/v2/namespaces/public/default", 403),
            ("/nowhere", 403),
        ):
            assert ask_as(world, "r", "GET", path).status == status, path


def test_a_provider_that_fails_lets_nobody_in(world: Served) -> None:
    with world.access(Access(Fails(RuntimeError("a defect")))):
        assert ask_as(world, "r", "GET", "/admin/v2/clusters").status == 500


def test_who_may_not_is_refused_before_anything_happens(
    world: Served, caplog: pytest.LogCaptureFixture
) -> None:
    refuses = Refuses()
    with world.access(Access(Knows(), refuses)):
        response = ask_as(world, "r", "DELETE", "/admin/v2/persistent/public/default/t")
    assert (response.status, json.loads(response.body)) == (403, {"reason": "not you"})
    assert refuses.asked == [("r", "delete_topic", "persistent://public/default/t")]
    [line] = [vars(record) for record in caplog.records if record.name == "magnetar.audit"]
    assert (line["message"], line["role"], line["status"]) == ("refused", "r", 403)


@pytest.mark.parametrize("row", ENDPOINTS, ids=lambda row: f"{row.method} {row.path}")
def test_every_row_is_asked_for_but_those_of_read_plans_and_metrics(world: Served, row: Endpoint) -> None:
    refuses = Refuses()
    with world.access(Access(Knows(), refuses, open_metrics=False)):
        response = ask_as(world, "r", row.method, path_of(row.path))
    if row.resource is Resource.READ_PLAN or row.lets_in:
        assert not refuses.asked
    else:
        assert response.status == row.refused_status
        [(role, operation, _target)] = refuses.asked
        assert (role, operation) == ("r", str(row.operation))


_LARGE: dict[str, Any] = {
    "a wide list": [1] * 20_000,
    "a wide object": {f"k{number}": 1 for number in range(4_000)},
    "a long text": "x" * 50_000,
    "a long number in text": "1" * 50_000,
    "a wide field": {name: [1] * 4_000 for name in ("type", "size", "topic", "ledgerId", "allowedClusters")},
    "a wide item": [{"topic": [1] * 8_000, "payload": "x" * 20_000}],
}


@pytest.mark.parametrize("what", _LARGE)
def test_no_error_gives_a_large_body_back(world: Served, what: str) -> None:
    body = json.dumps(_LARGE[what]).encode()
    for row in ENDPOINTS:
        if not row.body or row.upgrades or row.reads_as_it_comes:
            continue
        headers = {"content-type": "application/json"}
        request = Request(row.method, path_of(row.path), Query(), headers, body)
        response: Response = world.world.run(world.http.answer(request))
        assert len(response.body) < 5_000, ids(row)
        assert response.status != 500, ids(row)
