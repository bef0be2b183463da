"""Endpoints of brokers: settings, health, metrics and lookup."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from http import HTTPStatus
from itertools import chain

from magnetar.broker.admin.backlogs import BacklogAdmin
from magnetar.broker.admin.brokers import BrokerAdmin
from magnetar.errors import BrokerError, InvalidRequest, NotFound, ServedElsewhere
from magnetar.http.calls import as_json, calls, done
from magnetar.http.engine.listening import rotation
from magnetar.http.engine.message import (
    Request,
    Response,
    error_response,
    json_response,
    text_response,
)
from magnetar.http.engine.page_files import takes_gzip
from magnetar.http.metrics.exposition import content_type, described
from magnetar.http.metrics.rendering import given_up, render
from magnetar.http.routing import Application, Endpoint, Parameter
from magnetar.http.shapes.names import TOPIC, cluster_of, topic_of, variable
from magnetar.security.authorization import BrokerOperation as B
from magnetar.security.authorization import TopicOperation

_SETTING = variable("setting")


async def _list_brokers_of_cluster(application: Application, request: Request) -> Response:
    await application.admin.clusters.get(cluster_of(request.variables))
    return as_json(application.admin.brokers.ids())


async def _owned(application: Application, request: Request) -> Response:
    await application.admin.clusters.get(cluster_of(request.variables))
    return json_response(dict(application.admin.brokers.owned(request.variables["broker"])))


async def _shut_down(application: Application, request: Request) -> Response:
    """Answers the request, then stops the broker as SIGTERM does; the broker always closes its topics
    cleanly.
    """
    text = request.query.get("maxConcurrentUnloadPerSec") or "0"
    try:
        per_second = int(text)
    except ValueError as error:
        raise InvalidRequest(f"maxConcurrentUnloadPerSec must be a whole number, not {text!r}") from error
    application.admin.brokers.unload_slowly(per_second)
    application.process.stop()
    return Response(HTTPStatus.NO_CONTENT)


async def _runtime_settings(application: Application, request: Request) -> Response:
    brokers = application.admin.brokers
    changed = await brokers.dynamic_values()
    counted = {name: changed[name] for name in brokers.dynamic_names() if name in changed}
    return json_response({**application.process.settings, **counted})


async def _health(application: Application, request: Request) -> Response:
    """Runs the health check; a failed check is answered with status 500, whatever the error's own status."""
    broker_id = request.query.get("brokerId")
    if broker_id:
        application.admin.brokers.check_broker(broker_id)
    topic_version = request.query.get("topicVersion", "V1")
    if topic_version not in ("V1", "V2"):
        raise NotFound(f"topicVersion must be V1 or V2, not {topic_version}")
    if not application.process.ready():
        return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "The broker does not serve clients at present")
    try:
        await application.process.check_health(topic_version == "V2")
    except BrokerError as error:
        return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, f"Health check failed: {error}")
    return text_response("ok")


async def _ready(application: Application, request: Request) -> Response:
    if not application.process.ready():
        return error_response(
            HTTPStatus.INTERNAL_SERVER_ERROR, "The broker does not serve clients at present"
        )
    return text_response("ok")


async def _version(application: Application, request: Request) -> Response:
    return text_response(application.version)


async def _lookup(application: Application, request: Request) -> Response:
    listener = request.query.get("listenerName") or request.headers.get("x-pulsar-listenername")
    found = await application.admin.brokers.lookup(
        topic_of(request.variables), listener, authoritative=request.flag("authoritative")
    )
    if found.redirect:
        raise ServedElsewhere(
            "Another broker must answer this lookup",
            found.http_url,
            found.http_url_tls,
            authoritative=found.authoritative,
        )
    answer = {
        "brokerUrl": found.broker_url,
        "brokerUrlTls": found.broker_url_tls,
        "httpUrl": found.http_url,
        "httpUrlTls": found.http_url_tls,
        "nativeUrl": found.broker_url,
        "brokerUrlSsl": "",
    }
    return json_response({name: value for name, value in answer.items() if value is not None})


async def _metrics(application: Application, request: Request) -> Response:
    async def begin(kind: str) -> Iterator[str]:
        snapshot = await application.process.figures()
        return described(chain(render(snapshot, application.metrics), given_up(snapshot)), kind)

    kind = content_type(request.headers.get("accept", ""))
    assert application.scrapes is not None, "no server"
    text = await application.scrapes.text(kind, begin)
    vary = ("Vary", "Accept, Accept-Encoding")
    if takes_gzip(request):
        headers = [vary, ("Content-Encoding", "gzip")]
        return Response(HTTPStatus.OK, content_type=kind, headers=headers, pieces=text.gzipped())
    return Response(HTTPStatus.OK, content_type=kind, headers=[vary], pieces=text.plain())


async def _rotation(application: Application, _request: Request) -> Response:
    """Returns 200 while the broker serves clients and the status file (``statusFilePath``) exists."""
    process = application.process
    return rotation(process.in_rotation if process.ready() else None, "broker")


BROKERS: Sequence[Endpoint] = (
    Endpoint("GET", "/metrics", _metrics, "metrics for Prometheus", B.GET_METRICS),
    Endpoint(
        "GET",
        "/admin/v2/brokers",
        calls(BrokerAdmin.ids, answer=as_json),
        "list live brokers",
        B.LIST_BROKERS,
        ("/admin/brokers",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/backlog-quota-check",
        calls(BacklogAdmin.check_quotas),
        "check backlog quotas now",
        B.CHECK_BACKLOG_QUOTAS,
        ("/admin/brokers/backlog-quota-check",),
        success=204,
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/health",
        _health,
        "check the broker by publishing and reading a message",
        B.HEALTH_CHECK,
        ("/admin/brokers/health",),
        (Parameter("brokerId", "text"), Parameter("topicVersion", "text")),
        refusals={404: "the broker does not exist"},
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/ready",
        _ready,
        "whether the broker serves clients",
        B.READY_CHECK,
        ("/admin/brokers/ready",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/version",
        _version,
        "version of Magnetar",
        B.GET_VERSION,
        ("/admin/brokers/version",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/leaderBroker",
        calls(BrokerAdmin.leader, answer=as_json),
        "the broker that leads the cluster",
        B.GET_LEADER,
        ("/admin/brokers/leaderBroker",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/internal-configuration",
        calls(BrokerAdmin.internal_configuration, answer=as_json),
        "addresses of the metadata stores",
        B.GET_CONFIGURATION,
        ("/admin/brokers/internal-configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration",
        calls(BrokerAdmin.dynamic_names, answer=as_json),
        "settings that can be changed while brokers run",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/values",
        calls(BrokerAdmin.dynamic_values, answer=as_json),
        "settings that were changed while brokers run",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration/values",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/brokers/configuration/{setting}/{value}",
        calls(BrokerAdmin.set_dynamic, _SETTING, variable("value"), answer=done),
        "change a setting while brokers run",
        B.UPDATE_CONFIGURATION,
        ("/admin/brokers/configuration/{setting}/{value}",),
        success=200,
    ),
    Endpoint(
        "DELETE",
        "/admin/v2/brokers/configuration/{setting}",
        calls(BrokerAdmin.delete_dynamic, _SETTING, answer=done),
        "reset a setting to the value in the configuration file",
        B.UPDATE_CONFIGURATION,
        ("/admin/brokers/configuration/{setting}",),
        success=200,
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/configuration/runtime",
        _runtime_settings,
        "all effective settings",
        B.GET_CONFIGURATION,
        ("/admin/brokers/configuration/runtime",),
    ),
    Endpoint(
        "POST",
        "/admin/v2/brokers/shutdown",
        _shut_down,
        "unload all bundles and stop the broker",
        B.SHUT_DOWN,
        ("/admin/brokers/shutdown",),
        (Parameter("maxConcurrentUnloadPerSec", "whole", "0"),),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/{cluster}",
        _list_brokers_of_cluster,
        "list live brokers",
        B.LIST_BROKERS,
        ("/admin/brokers/{cluster}",),
    ),
    Endpoint(
        "GET",
        "/admin/v2/brokers/{cluster}/{broker}/ownedNamespaces",
        _owned,
        "bundles that a broker serves",
        B.LIST_BROKERS,
        ("/admin/brokers/{cluster}/{broker}/ownedNamespaces",),
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}",
        _lookup,
        "address of the broker that serves a topic",
        TopicOperation.LOOKUP,
        (
            "/lookup/v2/topic/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
            "/lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}",
        ),
        parameters=(Parameter("authoritative", "truth", "false"), Parameter("listenerName", "text")),
        refusals={307: "another broker answers the lookup"},
    ),
    Endpoint(
        "GET",
        "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}/bundle",
        calls(BrokerAdmin.bundle, TOPIC, answer=text_response),
        "bundle of a topic",
        TopicOperation.GET_BUNDLE_RANGE,
        ("/lookup/v2/destination/{domain}/{tenant}/{cluster}/{namespace}/{topic}/bundle",),
    ),
)
STATUS = Endpoint(
    "GET",
    "/status.html",
    _rotation,
    "whether load balancers may send clients here",
    B.READY_CHECK,
    refusals={404: "the file of statusFilePath does not exist, or clients are not served"},
    # Load balancers have no credentials; Pulsar does not authenticate them either.
    public=True,
)
