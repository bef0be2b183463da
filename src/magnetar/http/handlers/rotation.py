"""Whether load balancers are to send clients to this broker."""

from __future__ import annotations

from magnetar.http.engine.message import Request, Response
from magnetar.http.engine.rotation import rotation as answer
from magnetar.http.routing import Application


async def rotation(application: Application, _request: Request) -> Response:
    """Returns 200 while clients are served and the operator's file exists."""
    process = application.process
    return answer(process.in_rotation if process.ready() else None, "broker")
