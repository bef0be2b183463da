"""Publishing the messages of a request, and the schemas of topics."""

from __future__ import annotations

from magnetar.errors import InvalidRequest, TopicNotFound
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import text, text_map
from magnetar.http.shapes.names import topic_of

_ACCEPTED = 202


async def publish(application: Application, request: Request) -> Response:
    return await _published(application, request, None)


async def publish_to_partition(application: Application, request: Request) -> Response:
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


async def get_schema(application: Application, request: Request) -> Response:
    found = await application.admin.schemas.get(topic_of(request.variables), None)
    return json_response(found)


async def get_version(application: Application, request: Request) -> Response:
    try:
        version = int(request.variables["version"])
    except ValueError as error:
        raise InvalidRequest(f"version must be a number, not {request.variables['version']!r}") from error
    found = await application.admin.schemas.get(topic_of(request.variables), version)
    return json_response(found)


async def get_all(application: Application, request: Request) -> Response:
    found = await application.admin.schemas.versions(topic_of(request.variables))
    return json_response({"getSchemaResponses": list(found)})


async def metadata(application: Application, request: Request) -> Response:
    found = await application.admin.schemas.places(topic_of(request.variables))
    return json_response(found) if found is not None else Response(200)


async def delete(application: Application, request: Request) -> Response:
    version = await application.admin.schemas.delete(topic_of(request.variables), force=request.flag("force"))
    return json_response({"version": version})


def _payload(request: Request) -> tuple[str, str, dict[str, str]]:
    """Returns type, definition and properties of a ``PostSchemaPayload``.

    :raises InvalidRequest: the body has another form
    """
    value = request.json()
    if not isinstance(value, dict):
        raise InvalidRequest("must be an object with type, schema and properties")
    return (
        text("type", value.get("type")),
        text("schema", value.get("schema") or ""),
        text_map("properties", value.get("properties") or {}),
    )


async def post(application: Application, request: Request) -> Response:
    version = await application.admin.schemas.post(topic_of(request.variables), *_payload(request))
    return json_response({"version": {"version": version}})


async def compatibility(application: Application, request: Request) -> Response:
    strategy = await application.admin.schemas.check(topic_of(request.variables), *_payload(request))
    return json_response({"schemaCompatibilityStrategy": strategy, "compatibility": True}, _ACCEPTED)


async def version_of(application: Application, request: Request) -> Response:
    version = await application.admin.schemas.version_of(topic_of(request.variables), *_payload(request))
    return json_response({"version": version})
