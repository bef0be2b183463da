"""The audit log: one line for each change and each refused request, with role, address, operation, target and
answer.

The lines belong to the logger ``magnetar.audit``; their fields have the same names in text and JSON. They
never contain a body, header or query.
"""

from __future__ import annotations

import logging
from http import HTTPStatus

from magnetar.http.engine.message import Request
from magnetar.security.operations import Operation
from magnetar.security.principal import Principal

AUDIT = "magnetar.audit"

log = logging.getLogger(AUDIT)

_REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_MAX_PATH = 512


def record(
    request: Request, who: Principal, operation: Operation | None, status: int, *, changes: bool
) -> None:
    """Writes the line of a request that was answered.

    :param operation: None: the request matched no endpoint
    :param changes: whether the request was to change something
    """
    if not changes and status not in _REFUSALS:
        return
    refused = status >= HTTPStatus.BAD_REQUEST
    log.log(
        logging.WARNING if status in _REFUSALS else logging.INFO,
        "refused" if refused else "done",
        extra={
            "role": who.role or "anonymous",
            "original_role": who.original_role or "",
            "peer": request.peer,
            "operation": str(operation or ""),
            "method": request.method,
            "path": request.path[:_MAX_PATH],
            "status": int(status),
        },
    )
