"""Endpoints for publishing messages over HTTP (PIP-64), and for schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magnetar.broker.admin.schemas import SchemaAdmin
from magnetar.errors import InvalidRequest, TopicNotFound
from magnetar.http.calls import Several, as_json, calls, json_field, json_or
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application, Endpoint, Handler, Parameter
from magnetar.http.shapes.fields import always, flag, text, text_map
from magnetar.http.shapes.names import TOPIC, topic_of
from magnetar.security.authorization import TopicOperation
from magnetar.security.authorization import TopicOperation as T

_REFUSALS = {
    404: "the topic, partition, namespace or schema version does not exist",
    405: "the broker does not serve topics of this kind",
    409: "the schema is not compatible, a quota is exceeded, or another producer has the name or the topic",
    422: "the schema is invalid",
    429: "the publish rate of the topic is exceeded for more than the next 5 seconds",
}
_ACCEPTED = 202
_PATH = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LEGACY = "/admin/schemas/{tenant}/{cluster}/{namespace}/{topic}"
_BODY = "PostSchemaPayload"
_REFUSED = {409: "the schema is not compatible", 422: "the schema is invalid"}


async def _publish(application: Application, request: Request) -> Response:
    return await _published(application, request, None)


async def _publish_to_partition(application: Application, request: Request) -> Response:
    given = request.variables["partition"]
    if not (given.isascii() and given.isdigit() and len(given) < 10):
        raise TopicNotFound(f"{given!r} is not a partition number")
    return await _published(application, request, int(given))


async def _published(application: Application, request: Request, partition: int | None) -> Response:
    # Imported with the first such message: protobuf is large.
    from magnetar.http.shapes.producer_messages import publication

    publishing = application.admin.publishing
    wanted = publication(request, publishing.now_ms())
    topic = topic_of(request.variables)
    return json_response(dict(await publishing.publish(topic, wanted, request.peer, partition)))


def _payload(request: Request) -> Several:
    """Returns the type, the definition and the properties of a ``PostSchemaPayload``.

    :raises InvalidRequest: the body is not a ``PostSchemaPayload``
    """
    value = request.json()
    if not isinstance(value, dict):
        raise InvalidRequest("The body must be a JSON object with type, schema and properties")
    return Several(
        (
            text("type", value.get("type")),
            text("schema", value.get("schema") or ""),
            text_map("properties", value.get("properties") or {}),
        )
    )


def _version(request: Request) -> int:
    """Returns the schema version in the path.

    :raises InvalidRequest: the version is not a number
    """
    try:
        return int(request.variables["version"])
    except ValueError as error:
        raise InvalidRequest(f"version must be a number, not {request.variables['version']!r}") from error


def _posted(version: int) -> Response:
    return json_response({"version": {"version": version}})


def _compatible(strategy: str) -> Response:
    return json_response({"schemaCompatibilityStrategy": strategy, "compatibility": True}, _ACCEPTED)


def _row(domain: str, suffix: str, handler: Handler, description: str) -> Endpoint:
    return Endpoint(
        "POST",
        f"/topics/{domain}/{{tenant}}/{{namespace}}/{{topic}}{suffix}",
        handler,
        description,
        TopicOperation.PRODUCE,
        parameters=(Parameter("addSchema", "truth", "true"),),
        body="ProducerMessages",
        success=200,
        refusals=_REFUSALS,
        constants={"domain": domain},
    )


PUBLISHING: Sequence[Endpoint] = [
    row
    for domain in ("persistent", "non-persistent")
    for row in (
        _row(domain, "", _publish, "publish messages given as text"),
        _row(
            domain,
            "/partitions/{partition}",
            _publish_to_partition,
            "publish messages given as text to one partition",
        ),
    )
]
_ROWS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        "/schema",
        calls(SchemaAdmin.get, TOPIC, always(None), answer=as_json),
        "the latest version of the schema",
        T.GET_SCHEMA,
    ),
    Endpoint(
        "GET",
        "/schema/{version}",
        calls(SchemaAdmin.get, TOPIC, _version, answer=as_json),
        "one version of the schema",
        T.GET_SCHEMA,
    ),
    Endpoint(
        "GET",
        "/schemas",
        calls(SchemaAdmin.versions, TOPIC, answer=json_field("getSchemaResponses")),
        "all versions of the schema",
        T.GET_SCHEMA,
    ),
    Endpoint(
        "GET",
        "/metadata",
        calls(SchemaAdmin.places, TOPIC, answer=json_or(200)),
        "ledgers with the versions of the schema",
        T.GET_SCHEMA,
    ),
    Endpoint(
        "POST",
        "/schema",
        calls(SchemaAdmin.post, TOPIC, _payload, answer=_posted),
        "add a version of the schema",
        T.CREATE_SCHEMA,
        body=_BODY,
        success=200,
        refusals=_REFUSED,
    ),
    Endpoint(
        "DELETE",
        "/schema",
        calls(SchemaAdmin.delete, TOPIC, force=flag("force"), answer=json_field("version")),
        "delete the schema; force: delete its versions, too",
        T.DELETE_SCHEMA,
        parameters=(Parameter("force", "truth", "false"),),
        success=200,
    ),
    Endpoint(
        "POST",
        "/compatibility",
        calls(SchemaAdmin.check, TOPIC, _payload, answer=_compatible),
        "whether a schema is compatible",
        T.CHECK_SCHEMA,
        asks=True,
        body=_BODY,
        success=202,
        refusals=_REFUSED,
    ),
    Endpoint(
        "POST",
        "/version",
        calls(SchemaAdmin.version_of, TOPIC, _payload, answer=json_field("version")),
        "the version with the same schema",
        T.GET_SCHEMA,
        asks=True,
        body=_BODY,
        success=200,
        refusals=_REFUSED,
    ),
)
SCHEMAS: Sequence[Endpoint] = [
    replace(row, path=_PATH + row.path, aliases=(_LEGACY + row.path,)) for row in _ROWS
]
