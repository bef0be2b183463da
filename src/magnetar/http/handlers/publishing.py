"""Publishing the messages of a request."""

from __future__ import annotations

from magnetar.errors import TopicNotFound
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application
from magnetar.http.shapes.names import topic_of


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
