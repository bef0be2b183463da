"""Magnetar's own endpoint for the use of disk space."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.routing import Application, Endpoint, Parameter
from magnetar.security.operations import BrokerOperation


async def _report(application: Application, request: Request) -> Response:
    return json_response(await application.process.storage(request.query.get("namespace")))


STORAGE: Sequence[Endpoint] = [
    Endpoint(
        "GET",
        "/admin/v2/magnetar/storage",
        _report,
        "the disk, the ledger store, and the space that topics use, retain and will need",
        BrokerOperation.GET_STORAGE,
        parameters=(Parameter("namespace", "text"),),
    ),
]
