"""Clusters, brokers, tenants, namespaces, lookup, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from itertools import chain

from magnetar.errors import BrokerError, InvalidRequest, NotFound, ServedElsewhere
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
from magnetar.http.routing import Application
from magnetar.http.shapes.names import cluster_of, tenant_of, topic_of


async def list_clusters(application: Application, request: Request) -> Response:
    return json_response(list(await application.admin.clusters.names()))


async def get_cluster(application: Application, request: Request) -> Response:
    return json_response(await application.admin.clusters.get(cluster_of(request.variables)))


async def list_brokers(application: Application, request: Request) -> Response:
    return json_response(list(application.admin.brokers.ids()))


async def list_brokers_of_cluster(application: Application, request: Request) -> Response:
    await application.admin.clusters.get(cluster_of(request.variables))
    return await list_brokers(application, request)


async def owned(application: Application, request: Request) -> Response:
    await application.admin.clusters.get(cluster_of(request.variables))
    return json_response(dict(application.admin.brokers.owned(request.variables["broker"])))


async def shut_down(application: Application, request: Request) -> Response:
    """Answers, and then stops as on SIGTERM; topics are closed in an orderly way in any case."""
    text = request.query.get("maxConcurrentUnloadPerSec") or "0"
    try:
        per_second = int(text)
    except ValueError as error:
        raise InvalidRequest("maxConcurrentUnloadPerSec must be a whole number") from error
    application.admin.brokers.unload_slowly(per_second)
    application.process.stop()
    return Response(HTTPStatus.NO_CONTENT)


async def leader(application: Application, request: Request) -> Response:
    return json_response(application.admin.brokers.leader())


async def internal_configuration(application: Application, request: Request) -> Response:
    return json_response(application.admin.brokers.internal_configuration())


async def dynamic_settings(application: Application, request: Request) -> Response:
    return json_response(list(application.admin.brokers.dynamic_names()))


async def dynamic_values(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.brokers.dynamic_values()))


async def set_dynamic(application: Application, request: Request) -> Response:
    """Sets a dynamic setting; the answer has no body."""
    await application.admin.brokers.set_dynamic(request.variables["setting"], request.variables["value"])
    return Response(HTTPStatus.OK)


async def delete_dynamic(application: Application, request: Request) -> Response:
    await application.admin.brokers.delete_dynamic(request.variables["setting"])
    return Response(HTTPStatus.OK)


async def runtime_settings(application: Application, request: Request) -> Response:
    brokers = application.admin.brokers
    changed = await brokers.dynamic_values()
    counted = {name: changed[name] for name in brokers.dynamic_names() if name in changed}
    return json_response({**application.process.settings, **counted})


async def health(application: Application, request: Request) -> Response:
    """Runs the health check; each of its errors is answered as a server error, whatever its usual status."""
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


async def ready(application: Application, request: Request) -> Response:
    if not application.process.ready():
        return error_response(
            HTTPStatus.INTERNAL_SERVER_ERROR, "The broker does not serve clients at present"
        )
    return text_response("ok")


async def version(application: Application, request: Request) -> Response:
    return text_response(application.version)


async def list_tenants(application: Application, request: Request) -> Response:
    return json_response(list(await application.admin.tenants.names()))


async def get_tenant(application: Application, request: Request) -> Response:
    return json_response(await application.admin.tenants.get(tenant_of(request.variables)))


async def lookup(application: Application, request: Request) -> Response:
    listener = request.query.get("listenerName") or request.headers.get("x-pulsar-listenername")
    found = await application.admin.brokers.lookup(
        topic_of(request.variables), listener, authoritative=request.flag("authoritative")
    )
    if found.redirect:
        raise ServedElsewhere(
            "Another broker answers this lookup",
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


async def bundle(application: Application, request: Request) -> Response:
    return text_response(await application.admin.brokers.bundle(topic_of(request.variables)))


async def metrics(application: Application, request: Request) -> Response:
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
