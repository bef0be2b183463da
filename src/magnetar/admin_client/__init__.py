"""A client of the admin interface that uses only the standard library.

Calls block; any thread can make calls, because each call uses a connection of its own.
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
