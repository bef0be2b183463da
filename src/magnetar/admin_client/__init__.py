"""Access to the admin interface, with nothing but the standard library.

Calls block and may come from any thread; each is a connection of its own.
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
