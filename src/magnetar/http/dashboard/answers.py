"""Single answers for the page, beside the events: brokers, and policies with their effective values."""

from __future__ import annotations

from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application
from magnetar.http.shapes.names import namespace_of, topic_of


async def brokers(application: Application, _request: Request) -> Response:
    return json_response(application.admin.load.brokers())


async def namespace_policies(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.namespaces.all_of(namespace_of(request.variables))))


async def topic_policies(application: Application, request: Request) -> Response:
    """Returns the policies of a topic, not of a partition.

    :raises NotAllowed: topic policies are disabled
    """
    return json_response(dict(await application.admin.topic_policies.all_of(topic_of(request.variables))))
