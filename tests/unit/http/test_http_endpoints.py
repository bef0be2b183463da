"""Endpoints, asked of a broker on a simulated world."""

from itertools import pairwise

import pytest
from served import LEGACY, TOPIC, Served, answer

from magnetar.broker.admin.brokers import BrokerAdmin, LookupAnswer
from magnetar.errors import PersistenceFailure
from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.ledger.interface import LedgerError
from magnetar.metadata.interface import MetadataUnavailable

P = "/admin/v2/persistent/public/default"


@pytest.fixture(scope="module")
def served() -> Served:
    """For tests that change nothing."""
    broker = Served()
    assert broker.ask("PUT", f"{P}/parted/partitions", "1").status == 204
    return broker


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/admin/v2/clusters", ["standalone"]),
        ("/admin/v2/clusters/", ["standalone"]),
        ("/admin/clusters", ["standalone"]),
        ("/admin/v2/clusters/standalone", {"serviceUrl": "http://127.0.0.1:8080"}),
        ("/admin/v2/brokers", ["127.0.0.1:8080"]),
        ("/admin/v2/brokers/standalone", ["127.0.0.1:8080"]),
        (
            "/admin/v2/brokers/leaderBroker",
            {"brokerId": "127.0.0.1:8080", "serviceUrl": "http://127.0.0.1:8080"},
        ),
        (
            "/admin/brokers/internal-configuration",
            {"metadataStoreUrl": "sqlite:metadata", "ledgersRootPath": "/ledgers"},
        ),
        ("/admin/v2/brokers/configuration", []),
        ("/admin/v2/brokers/configuration/values", {}),
        ("/admin/v2/brokers/configuration/runtime", {"clusterName": "standalone"}),
        ("/admin/v2/tenants", ["public", "sample"]),
        ("/admin/properties", ["public", "sample"]),
        ("/admin/v2/tenants/public", {"adminRoles": [], "allowedClusters": ["standalone"]}),
        ("/admin/v2/namespaces/public", ["public/default"]),
        ("/admin/v2/namespaces/public/default", {"replication_clusters": ["standalone"], "deleted": False}),
        (
            "/admin/namespaces/sample/standalone/ns1",
            {"replication_clusters": ["standalone"], "deleted": False},
        ),
        ("/admin/v2/persistent/public/default", ["persistent://public/default/parted-partition-0", TOPIC]),
        ("/admin/persistent/sample/standalone/ns1", [LEGACY]),
        ("/admin/v2/persistent/sample/standalone/ns1", [LEGACY]),
        ("/admin/v2/persistent/public/default/partitioned", ["persistent://public/default/parted"]),
        ("/admin/v2/persistent/public/default/t/partitions", {"partitions": 0, "deleted": False}),
        (
            "/admin/v2/persistent/public/default/t/stats",
            {"msgRateIn": 0.0, "ownerBroker": "127.0.0.1:8080"},
        ),
        (
            "/admin/persistent/sample/standalone/ns1/t/stats",
            {"msgRateIn": 0.0, "ownerBroker": "127.0.0.1:8080"},
        ),
        (
            "/admin/v2/persistent/sample/standalone/ns1/t/stats",
            {"msgRateIn": 0.0, "ownerBroker": "127.0.0.1:8080"},
        ),
        (
            "/admin/v2/persistent/public/default/t/internalStats",
            {"state": "LedgerOpened", "lastConfirmedEntry": "1:-1"},
        ),
        (
            "/lookup/v2/topic/persistent/public/default/any",
            {
                "brokerUrl": "pulsar://127.0.0.1:6650",
                "httpUrl": "http://127.0.0.1:8080",
                "nativeUrl": "pulsar://127.0.0.1:6650",
                "brokerUrlSsl": "",
            },
        ),
    ],
)
def test_questions_are_answered(served: Served, path: str, expected: object) -> None:
    response = served.ask("GET", path)
    assert response.status == 200
    assert response.content_type == "application/json"
    told = answer(response)
    if isinstance(expected, dict) and expected:
        told = {name: told[name] for name in expected}
    assert told == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/admin/v2/brokers/health", b"ok"),
        ("/admin/v2/brokers/ready", b"ok"),
        ("/admin/v2/brokers/version", b"1.2.3"),
    ],
)
def test_bare_texts(served: Served, path: str, text: bytes) -> None:
    response = served.ask("GET", path)
    assert (response.status, response.body) == (200, text)


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/admin/v2/clusters/nope", 404, "Cluster does not exist"),
        ("GET", "/admin/v2/brokers/nope", 404, "Cluster does not exist"),
        ("GET", "/admin/v2/tenants/nope", 404, "Tenant does not exist"),
        ("GET", "/admin/v2/tenants/n%20o", 412, "invalid tenant name 'n o'"),
        ("GET", "/admin/v2/persistent/public/nope", 404, "Namespace not found"),
        (
            "GET",
            "/admin/v2/persistent/public/default/x/stats",
            404,
            "Topic persistent://public/default/x not found",
        ),
        (
            "GET",
            "/admin/v2/persistent/public/default/a%2Fb/stats",
            412,
            "the local name must not contain a slash",
        ),
        ("GET", "/lookup/v2/topic/perishable/public/default/t", 412, "'perishable' is not a topic domain"),
        ("GET", "/nothing", 404, "No such path: /nothing"),
        ("GET", "/admin/v2//clusters", 404, "No such path"),
        ("POST", "/admin/v2/clusters", 405, "Method POST is not allowed"),
        ("PUT", "/admin/v2/persistent/public/default/t", 409, "This topic already exists"),
        ("PUT", "/admin/v2/persistent/public/default/p/partitions", 400, "cannot be empty"),
    ],
)
def test_errors_have_a_status_and_a_reason(
    served: Served, method: str, path: str, status: int, reason: str
) -> None:
    response = served.ask(method, path)
    assert response.status == status
    told = answer(response)
    assert isinstance(told, dict)
    assert list(told) == ["reason"]
    assert reason in told["reason"]


def test_a_path_with_other_methods_names_them(served: Served) -> None:
    path = "/admin/v2/persistent/public/default/t"
    response = served.ask("POST", path)
    assert response.status == 405
    assert dict(response.headers)["Allow"] == "DELETE,GET,HEAD,OPTIONS,PUT"
    assert served.ask("OPTIONS", "/admin/v2/clusters").status == 204


@pytest.mark.parametrize(
    ("body", "content_type", "count", "properties"),
    [
        ("3", "application/json", 3, {}),
        ('"3"', "application/json", 3, {}),
        (
            '{"partitions":"2","properties":{"k":1.50,"m":7,"n":true}}',
            "application/vnd.partitioned-topic-metadata+json",
            2,
            {"k": "1.50", "m": "7", "n": "true"},
        ),
        (
            '{"partitions":2,"properties":{"k":"v"}}',
            "application/vnd.partitioned-topic-metadata+json",
            2,
            {"k": "v"},
        ),
    ],
)
def test_partitioned_topics_are_created(
    body: str, content_type: str, count: int, properties: dict[str, str]
) -> None:
    served = Served()
    assert served.ask("PUT", f"{P}/p/partitions", body, content_type=content_type).status == 204
    told = {"properties": properties} if properties else {}
    assert served.get(f"{P}/p/partitions") == {"partitions": count, "deleted": False, **told}
    assert served.get(f"{P}/p/properties") == properties
    assert f"persistent://public/default/p-partition-{count - 1}" in served.get(P)


@pytest.mark.parametrize(
    ("body", "status"),
    [("0", 406), ("true", 400), ('"three"', 400), ('""', 400), ("2.5", 400), ("{", 400), ("[1]", 400)],
)
def test_odd_numbers_of_partitions_are_refused(served: Served, body: str, status: int) -> None:
    path = "/admin/v2/persistent/public/default/p/partitions"
    assert served.ask("PUT", path, body).status == status


def test_a_partition_cannot_have_partitions(served: Served) -> None:
    path = "/admin/v2/persistent/public/default/p-partition-0/partitions"
    response = served.ask("PUT", path, "2")
    assert response.status == 412
    assert answer(response) == {"reason": "Partitioned Topic Name should not contain '-partition-'"}


def test_topics_are_listed_by_bundle() -> None:
    served = Served()
    assert served.ask("PUT", f"{P}/parted/partitions", "6").status == 204
    bounds = served.get("/admin/v2/namespaces/public/default/bundles")["boundaries"]
    lists = [
        answer(served.ask("GET", P, query={"bundle": f"{lower}_{upper}"}))
        for lower, upper in pairwise(bounds)
    ]
    assert sum(map(bool, lists)) > 1
    assert sorted(name for names in lists for name in names) == served.get(P)
    assert served.ask("GET", P, query={"bundle": "0x1_0x2"}).status == 412


def test_partitioned_topics_of_the_system_are_told_to_who_asks_for_them() -> None:
    served = Served()
    assert served.ask("PUT", f"{P}/__transaction_buffer_snapshot/partitions", "1").status == 204
    assert served.get(f"{P}/partitioned") == []
    found = answer(served.ask("GET", f"{P}/partitioned", query={"includeSystemTopic": "true"}))
    assert found == ["persistent://public/default/__transaction_buffer_snapshot"]


def test_operations_on_a_topic() -> None:
    served = Served()
    before = served.topic(TOPIC)
    assert served.ask("PUT", f"{P}/t/unload").status == 204
    assert served.topic(TOPIC) is not before
    last = served.get(f"{P}/t/internalStats")["lastConfirmedEntry"]
    assert last.endswith(":-1")
    assert answer(served.ask("POST", f"{P}/t/terminate")) == {
        "ledgerId": int(last.partition(":")[0]),
        "entryId": -1,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    assert served.get(f"{P}/t/internalStats")["state"] == "Terminated"
    assert served.ask("DELETE", f"{P}/t", query={"force": "true"}).status == 204
    assert served.ask("GET", f"{P}/t/stats").status == 404
    assert served.ask("DELETE", f"{P}/t/partitions").status == 404
    assert served.ask("PUT", f"{P}/new", '{"k":"v"}').status == 204
    assert served.get(f"{P}/new/properties") == {"k": "v"}
    assert served.ask("PUT", f"{P}/new", '{"k":[1]}').status == 400
    assert served.get(P) == ["persistent://public/default/new"]


def test_lookup_has_older_paths(served: Served) -> None:
    found = served.get("/lookup/v2/topic/persistent/sample/standalone/ns1/a%20b")
    assert found == served.get("/lookup/v2/destination/persistent/sample/standalone/ns1/a%20b")
    assert found["brokerUrl"] == "pulsar://127.0.0.1:6650"


def test_lookup_may_send_elsewhere(monkeypatch: pytest.MonkeyPatch, served: Served) -> None:
    async def elsewhere(
        _self: BrokerAdmin, _topic: str, _listener: str | None, *, authoritative: bool
    ) -> LookupAnswer:
        url = "pulsar://other:6650"
        return LookupAnswer(url, "http://other:8080", redirect=True, authoritative=authoritative)

    monkeypatch.setattr(BrokerAdmin, "lookup", elsewhere)
    response = served.ask("GET", "/lookup/v2/topic/persistent/public/elsewhere/t")
    assert response.status == 307
    location = dict(response.headers)["Location"]
    assert location == "http://other:8080/lookup/v2/topic/persistent/public/elsewhere/t?authoritative=false"


def test_health_tells_what_failed() -> None:
    served = Served()
    served.health_error = PersistenceFailure("no ledger")
    response = served.ask("GET", "/admin/v2/brokers/health")
    assert (response.status, answer(response)) == (500, {"reason": "Health check failed: no ledger"})
    served.ready = False
    assert served.ask("GET", "/admin/v2/brokers/health").status == 503
    assert served.ask("GET", "/admin/v2/brokers/ready").status == 500


def test_health_is_checked_by_the_name_of_either_form() -> None:
    served = Served()
    for query in ({}, {"topicVersion": "V1"}, {"topicVersion": "V2"}):
        assert served.ask("GET", "/admin/v2/brokers/health", query=query).status == 200
    assert served.checked == [False, False, True]
    assert served.ask("GET", "/admin/v2/brokers/health", query={"topicVersion": "V3"}).status == 404


def test_a_defect_is_not_shown_to_clients(caplog: pytest.LogCaptureFixture) -> None:
    served = Served()
    served.health_error = ZeroDivisionError("secret detail")
    response = served.ask("GET", "/admin/v2/brokers/health")
    assert response.status == 500
    assert b"secret" not in response.body
    assert "secret detail" in caplog.text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MetadataUnavailable("nobody answers"), "Metadata store: nobody answers"),
        (LedgerError("no bookies"), "Storage: no bookies"),
    ],
)
def test_what_fails_below_is_no_defect_and_told(
    error: Exception, reason: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served()

    async def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(served.broker.policies.clusters, "names", fails)
    response = served.ask("GET", "/admin/v2/clusters")
    assert (response.status, answer(response)) == (500, {"reason": reason})
    assert "internal error" not in caplog.text


def test_every_endpoint_is_described() -> None:
    assert all(endpoint.description for endpoint in ENDPOINTS)
    assert all(path.startswith("/") for e in ENDPOINTS for path in (e.path, *e.aliases))
