"""Permissions on several topics by one request: all of them or none, and only by who administers them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served import LEGACY, TOPIC, Served
from test_endpoint_table import Knows

from magnetar.broker.policies.grants import StoredGrants
from magnetar.http.engine.message import Request, Response
from magnetar.http.routing import Access
from magnetar.security.rules import PulsarRules

ROOT = "/admin/v2/namespaces"
OTHER = "persistent://public/default/other"


@pytest.fixture
def served() -> Served:
    found = Served()
    found.topic(OTHER)
    return found


def grant(served: Served, *options: Any) -> Response:
    return served.ask("POST", f"{ROOT}/grantPermissionsOnTopics", json.dumps(options))


def of(topic: str, role: str = "r", *actions: str) -> dict[str, Any]:
    return {"topic": topic, "role": role, "actions": actions or ["produce"]}


def found(served: Served, topic: str) -> Any:
    return served.get(f"/admin/v2/{topic.replace('://', '/')}/permissions")


def test_all_of_them_are_granted_and_revoked(served: Served) -> None:
    assert grant(served, of(TOPIC), of(TOPIC, "s", "consume"), of(OTHER)).status == 204
    assert found(served, TOPIC) == {"r": ["produce"], "s": ["consume"]}
    assert found(served, OTHER) == {"r": ["produce"]}
    options = json.dumps([{"topic": TOPIC, "role": "r"}, {"topic": OTHER, "role": "r"}])
    assert served.ask("POST", f"{ROOT}/revokePermissionsOnTopics", options).status == 204
    assert (found(served, TOPIC), found(served, OTHER)) == ({"s": ["consume"]}, {})


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ([], 400),
        ({}, 400),
        ([1], 400),
        ([of(TOPIC)] * 1001, 400),
        ([of(TOPIC), of(LEGACY)], 400),
        ([of(TOPIC), of(OTHER, "r", "fly")], 400),
        ([of(TOPIC), {"topic": OTHER, "actions": ["produce"]}], 400),
        ([of(TOPIC), {"topic": OTHER, "role": "r"}], 400),
        ([of(TOPIC), of("persistent://public")], 412),
        ([of(TOPIC), of("persistent://public/default/none")], 404),
        ([of("persistent://public/none/t")], 404),
    ],
)
def test_where_one_cannot_be_none_is(served: Served, options: Any, status: int) -> None:
    told = served.ask("POST", f"{ROOT}/grantPermissionsOnTopics", json.dumps(options))
    assert told.status == status, told.body
    assert found(served, TOPIC) == {}


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
def test_a_topic_that_is_not_there_has_none(served: Served, method: str, domain: str) -> None:
    path = f"/admin/v2/{domain}/public/default/none/permissions"
    told = served.ask(method, path if method == "GET" else f"{path}/r", '["produce"]')
    assert (told.status, json.loads(told.body)) == (
        404,
        {"reason": f"Topic {domain}://public/default/none not found"},
    )
    assert served.get("/admin/v2/namespaces/public/default")["auth_policies"]["destination_auth"] == {}


def test_what_is_revoked_of_a_topic_is_revoked_of_its_partitions(served: Served) -> None:
    parts = "persistent://public/default/parts"
    path = f"/admin/v2/{parts.replace('://', '/')}"
    assert served.ask("PUT", f"{path}/partitions", "2").status == 204
    other = f"{parts}-partition-of-another"
    served.topic(other)
    for name in (path, f"{path}-partition-1", f"{path}-partition-of-another"):
        for role in ("r", "s"):
            assert served.ask("POST", f"{name}/permissions/{role}", '["produce"]').status == 204
    assert served.ask("DELETE", f"{path}/permissions/r").status == 204
    assert found(served, parts) == found(served, f"{parts}-partition-1") == {"s": ["produce"]}
    assert found(served, other) == {"r": ["produce"], "s": ["produce"]}


def test_only_who_administers_all_of_them_may(served: Served) -> None:
    tenant = {"adminRoles": ["owner"], "allowedClusters": ["standalone"]}
    assert served.ask("POST", "/admin/v2/tenants/public", json.dumps(tenant)).status == 204
    served.ask("POST", "/admin/v2/namespaces/public/default/permissions/producer", '["produce"]')
    policies = served.broker.policies
    grants = StoredGrants(served.broker.metadata, policies.tenants, policies.namespaces)

    def ask(role: str, *options: Any) -> int:
        headers = {"authorization": f"Bearer {role}"}
        body = json.dumps(options).encode()
        request = Request("POST", f"{ROOT}/grantPermissionsOnTopics", headers=headers, body=body)
        return served.world.run(served.http.answer(request)).status

    with served.access(Access(Knows(), PulsarRules(grants, lambda: frozenset({"admin"})))):
        assert [ask(role, of(TOPIC)) for role in ("producer", "owner", "admin")] == [401, 204, 204]
        # Of the second one it is asked as well.
        assert ask("owner", of(TOPIC), of(LEGACY)) == 401


def test_legacy_namespaces_are_made_at_either_path(served: Served) -> None:
    path = "/admin/namespaces/sample/standalone/more"
    assert served.ask("PUT", f"{path}/policy").status == 204
    assert served.ask("PUT", path).status == 409


def test_what_is_granted_for_a_topic_goes_with_it(served: Served) -> None:
    parted, like = f"{OTHER}-parted", f"{OTHER}-parted-and-more"
    for topic in (parted, like):
        assert served.ask("PUT", f"/admin/v2/{topic.replace('://', '/')}/partitions", "2").status == 204
    granted = (OTHER, parted, f"{parted}-partition-1", like)
    assert grant(served, of(TOPIC), *map(of, granted)).status == 204
    for path in (OTHER, f"{parted}/partitions"):
        at = f"/admin/v2/{path.replace('://', '/')}"
        assert served.ask("DELETE", at).status == 204
        assert served.ask("PUT", at, "2" if path != OTHER else "").status == 204
    assert [found(served, topic) for topic in granted] == [{}, {}, {}, {"r": ["produce"]}]
    assert found(served, TOPIC) == {"r": ["produce"]}
