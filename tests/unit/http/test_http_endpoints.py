import asyncio
import json

import pytest
from stand_in_broker import StandInBroker

from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.engine.message import Request, Response
from magnetar.http.metrics.rendering import MetricsOptions
from magnetar.http.routing import Application
from magnetar.http.server import HttpServer
from magnetar.http.services import BrokerServices
from magnetar.io.real import real_io


def ask(
    broker: StandInBroker,
    method: str,
    path: str,
    body: str = "",
    query: dict[str, str] | None = None,
    content_type: str = "application/json",
) -> Response:
    services: BrokerServices = broker

    async def run() -> Response:
        io = real_io(asyncio.get_running_loop(), "/")
        server = HttpServer(io)
        server.serve(Application(services, MetricsOptions("0"), "1.2.3"))
        headers = {"content-type": content_type}
        return await server.answer(Request(method, path, query or {}, headers, body.encode()))

    return asyncio.run(run())


def answer(response: Response) -> object:
    return json.loads(response.body) if response.body else None


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
        ("/admin/brokers/internal-configuration", {"metadataStoreUrl": "sqlite:metadata"}),
        ("/admin/v2/brokers/configuration", []),
        ("/admin/v2/brokers/configuration/values", {}),
        ("/admin/v2/brokers/configuration/runtime", {"clusterName": "standalone"}),
        ("/admin/v2/tenants", ["public", "sample"]),
        ("/admin/properties", ["public", "sample"]),
        ("/admin/v2/tenants/public", {"adminRoles": [], "allowedClusters": ["standalone"]}),
        ("/admin/v2/namespaces/public", ["public/default"]),
        ("/admin/v2/namespaces/public/default", {"namespace": "public/default"}),
        ("/admin/namespaces/sample/standalone/ns1", {"namespace": "sample/standalone/ns1"}),
        ("/admin/v2/persistent/public/default", ["persistent://public/default/t"]),
        ("/admin/persistent/sample/standalone/ns1", ["persistent://sample/standalone/ns1/t"]),
        ("/admin/v2/persistent/sample/standalone/ns1", ["persistent://sample/standalone/ns1/t"]),
        ("/admin/v2/persistent/public/default/partitioned", ["persistent://public/default/p"]),
        ("/admin/v2/persistent/public/default/t/partitions", {"partitions": 0, "deleted": False}),
        (
            "/admin/v2/persistent/public/default/t/stats",
            {"msgRateIn": 0.0, "precise": False, "name": "persistent://public/default/t"},
        ),
        (
            "/admin/persistent/sample/standalone/ns1/t/stats",
            {"msgRateIn": 0.0, "precise": False, "name": "persistent://sample/standalone/ns1/t"},
        ),
        (
            "/admin/v2/persistent/sample/standalone/ns1/t/stats",
            {"msgRateIn": 0.0, "precise": False, "name": "persistent://sample/standalone/ns1/t"},
        ),
        (
            "/admin/v2/persistent/public/default/t/internalStats",
            {"state": "LedgerOpened", "metadata": False},
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
def test_questions_are_answered(path: str, expected: object) -> None:
    response = ask(StandInBroker(), "GET", path)
    assert response.status == 200
    assert response.content_type == "application/json"
    assert answer(response) == expected


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/admin/v2/brokers/health", b"ok"),
        ("/admin/v2/brokers/ready", b"ok"),
        ("/admin/v2/brokers/version", b"1.2.3"),
    ],
)
def test_bare_texts(path: str, text: bytes) -> None:
    response = ask(StandInBroker(), "GET", path)
    assert (response.status, response.body) == (200, text)


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/admin/v2/clusters/nope", 404, "Cluster does not exist"),
        ("GET", "/admin/v2/brokers/nope", 404, "Cluster does not exist"),
        ("GET", "/admin/v2/tenants/nope", 404, "Tenant does not exist"),
        ("GET", "/admin/v2/tenants/n%20o", 412, "invalid tenant name 'n o'"),
        ("GET", "/admin/v2/persistent/public/nope", 404, "Namespace does not exist"),
        (
            "GET",
            "/admin/v2/persistent/public/default/x/stats",
            404,
            "Topic persistent://public/default/x not found",
        ),
        ("GET", "/admin/v2/persistent/public/default/a%2Fb/stats", 412, "a slash in the local name"),
        ("GET", "/lookup/v2/topic/perishable/public/default/t", 412, "'perishable' is not a topic domain"),
        ("GET", "/nothing", 404, "Nothing is served at /nothing"),
        ("GET", "/", 404, "Nothing is served at /"),
        ("GET", "/admin/v2//clusters", 404, "Nothing is served"),
        ("POST", "/admin/v2/clusters", 405, "POST is not served"),
        ("PUT", "/admin/v2/persistent/public/default/t", 409, "This topic already exists"),
        ("PUT", "/admin/v2/persistent/public/default/p/partitions", 400, "cannot be empty"),
    ],
)
def test_errors_have_a_status_and_a_reason(method: str, path: str, status: int, reason: str) -> None:
    response = ask(StandInBroker(), method, path)
    assert response.status == status
    told = answer(response)
    assert isinstance(told, dict)
    assert list(told) == ["reason"]
    assert reason in told["reason"]


def test_a_path_with_other_methods_names_them() -> None:
    path = "/admin/v2/persistent/public/default/t"
    response = ask(StandInBroker(), "POST", path)
    assert response.status == 405
    assert dict(response.headers)["Allow"] == "DELETE,GET,HEAD,OPTIONS,PUT"
    assert ask(StandInBroker(), "OPTIONS", "/admin/v2/clusters").status == 204


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        ("3", "application/json", ("create partitioned", "persistent://public/default/p", 3, {})),
        (
            '{"partitions":2,"properties":{"k":"v"}}',
            "application/vnd.partitioned-topic-metadata+json",
            ("create partitioned", "persistent://public/default/p", 2, {"k": "v"}),
        ),
    ],
)
def test_partitioned_topics_are_created(body: str, content_type: str, expected: tuple[object, ...]) -> None:
    broker = StandInBroker()
    path = "/admin/v2/persistent/public/default/p/partitions"
    assert ask(broker, "PUT", path, body, content_type=content_type).status == 204
    assert broker.asked == [expected]


@pytest.mark.parametrize(
    ("body", "status"), [("0", 406), ("true", 400), ('"3"', 400), ("2.5", 400), ("{", 400), ("[1]", 400)]
)
def test_odd_numbers_of_partitions_are_refused(body: str, status: int) -> None:
    path = "/admin/v2/persistent/public/default/p/partitions"
    assert ask(StandInBroker(), "PUT", path, body).status == status


def test_a_partition_cannot_have_partitions() -> None:
    path = "/admin/v2/persistent/public/default/p-partition-0/partitions"
    response = ask(StandInBroker(), "PUT", path, "2")
    assert response.status == 412
    assert answer(response) == {"reason": "Partitioned Topic Name should not contain '-partition-'"}


def test_operations_on_a_topic() -> None:
    broker = StandInBroker()
    base = "/admin/v2/persistent/public/default/t"
    topic = "persistent://public/default/t"
    assert ask(broker, "PUT", f"{base}/unload").status == 204
    assert answer(ask(broker, "POST", f"{base}/terminate")) == {
        "ledgerId": 6,
        "entryId": -1,
        "partitionIndex": -1,
        "batchIndex": -1,
        "batchSize": 0,
    }
    assert ask(broker, "DELETE", base, query={"force": "true"}).status == 204
    assert ask(broker, "DELETE", f"{base}/partitions").status == 204
    assert ask(broker, "PUT", "/admin/v2/persistent/public/default/new", '{"k":"v"}').status == 204
    assert ask(broker, "PUT", "/admin/v2/persistent/public/default/new", '{"k":1}').status == 400
    assert broker.asked == [
        ("unload", topic),
        ("delete", topic, True),
        ("delete partitioned", topic, False),
        ("create", "persistent://public/default/new", {"k": "v"}),
    ]


def test_lookup_passes_on_what_it_was_asked() -> None:
    broker = StandInBroker()
    for path in (
        "/lookup/v2/topic/persistent/sample/global/ns1/a%20b",
        "/lookup/v2/destination/persistent/sample/global/ns1/a%20b",
    ):
        ask(broker, "GET", path, query={"authoritative": "true", "listenerName": "inside"})
    assert broker.asked == [("lookup", "persistent://sample/global/ns1/a b", True, "inside")] * 2


def test_lookup_may_send_elsewhere() -> None:
    response = ask(StandInBroker(), "GET", "/lookup/v2/topic/persistent/public/elsewhere/t")
    assert response.status == 307
    location = dict(response.headers)["Location"]
    assert location == "http://other:8080/lookup/v2/topic/persistent/public/elsewhere/t?authoritative=false"


def test_health_tells_what_failed() -> None:
    from magnetar.errors import PersistenceFailure

    broker = StandInBroker()
    broker.health_error = PersistenceFailure("no ledger")
    response = ask(broker, "GET", "/admin/v2/brokers/health")
    assert (response.status, answer(response)) == (500, {"reason": "Health check failed: no ledger"})
    broker.ready = False
    assert ask(broker, "GET", "/admin/v2/brokers/health").status == 503
    assert ask(broker, "GET", "/admin/v2/brokers/ready").status == 500


def test_a_defect_is_not_shown_to_clients(caplog: pytest.LogCaptureFixture) -> None:
    broker = StandInBroker()
    broker.health_error = ZeroDivisionError("secret detail")
    response = ask(broker, "GET", "/admin/v2/brokers/health")
    assert response.status == 500
    assert b"secret" not in response.body
    assert "secret detail" in caplog.text


def test_every_endpoint_is_described() -> None:
    assert all(endpoint.description for endpoint in ENDPOINTS)
    assert all(path.startswith("/") for e in ENDPOINTS for path in (e.path, *e.aliases))
