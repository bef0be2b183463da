"""Whether load balancers are to send clients to this broker."""

from __future__ import annotations

from http import HTTPStatus

from magnetar.errors import NotFound
from magnetar.http.engine.message import Request, Response, text_response
from magnetar.http.routing import Application


async def rotation(application: Application, _request: Request) -> Response:
    """While clients are served and the operator's file is there."""
    wanted = application.process.in_rotation
    if wanted is None or not wanted() or not application.process.ready():
        raise NotFound("This broker is not in rotation")
    return text_response("OK", HTTPStatus.OK, "text/plain")
