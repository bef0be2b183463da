"""One line for each change, and for each request that was refused: who, from where, what, on what, answer.

The lines are of the logger ``magnetar.audit``, their fields named alike in text and JSON; no body, header or
query is ever in them.
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
    """Of a request that was answered.

    :param operation: None: it was not found out what was wanted
    :param changes: it was to change something
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
