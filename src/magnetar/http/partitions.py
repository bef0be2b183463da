"""Carries out a request for a partitioned topic on each partition, at the broker that serves the
partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import quote

from magnetar.http.engine.message import Request, Response, nothing
from magnetar.http.routing import Application, Endpoint
from magnetar.http.shapes.names import topic_of


async def at_each_partition(
    application: Application, endpoint: Endpoint, request: Request
) -> Response | None:
    """Runs the operation of an endpoint on each partition of a topic, at the owner of the partition.

    A status 404, for example because a partition lacks the subscription, is an error only if every partition
    answers 404; any other error of a partition ends the operation.

    :returns: a response without a body; None if the endpoint must not run on each partition
        (``Endpoint.each``), the topic has no partitions, or this broker is the only broker
    """
    if not endpoint.each:
        return None
    names = await application.admin.partitions.elsewhere(topic_of(request.variables))
    if not names:
        return None
    found, missing = await application.admin.partitions.at_each_owner(
        names,
        lambda name: endpoint.handler(
            application, replace(request, variables={**request.variables, "topic": name.local})
        ),
        endpoint.method,
        _suffix(endpoint, request.variables),
        request.query,
        bytes(request.body) if request.has_body else None,
    )
    if missing is not None and not found:
        raise missing
    return nothing()


def _suffix(endpoint: Endpoint, variables: Mapping[str, str]) -> str:
    """Returns the part of the endpoint's path after the topic, with values for the variables."""
    pieces = endpoint.path.partition("{topic}")[2].split("/")
    filled = (quote(variables[piece[1:-1]], "") if piece.startswith("{") else piece for piece in pieces)
    return "/".join(filled)
