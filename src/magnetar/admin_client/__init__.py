"""A client of the admin interface that uses only the standard library.

Calls block and may come from any thread; each uses its own connection.
"""

from __future__ import annotations

from magnetar.admin_client.client import AdminClient, topic_path
from magnetar.admin_client.errors import (
    AdminError,
    BadRequest,
    CannotConnect,
    Conflict,
    NotAllowed,
    NotAuthorized,
    NotFound,
    PreconditionFailed,
    ServerError,
)

__all__ = [
    "AdminClient",
    "AdminError",
    "BadRequest",
    "CannotConnect",
    "Conflict",
    "NotAllowed",
    "NotAuthorized",
    "NotFound",
    "PreconditionFailed",
    "ServerError",
    "topic_path",
]
