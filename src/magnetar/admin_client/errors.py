"""Errors of the admin interface."""

from __future__ import annotations


class AdminError(Exception):
    """A request failed; the message gives the reason."""

    status = 0
    """The HTTP status; 0: no response was received."""

    def __init__(self, text: str, reason: str = "", status: int = 0) -> None:
        """:param text: the message of the error
        :param reason: the reason that the broker gave; empty: ``text`` is used
        :param status: the HTTP status; 0: the class's default status
        """
        super().__init__(text)
        self.reason = reason or text
        self.status = status or type(self).status


class CannotConnect(AdminError):
    """No response: nothing listens on the address, or the connection was lost."""


class BadRequest(AdminError):
    status = 400


class NotAuthorized(AdminError):
    """The client is not authenticated (401) or lacks permission (403)."""

    status = 401


class NotFound(AdminError):
    status = 404


class NotAllowed(AdminError):
    status = 405


class Conflict(AdminError):
    """The resource already exists, or is not in the required state."""

    status = 409


class PreconditionFailed(AdminError):
    """A name or a value is invalid, or a resource is still in use."""

    status = 412


class ServerError(AdminError):
    """The broker failed, or is not ready."""

    status = 500


_KINDS: dict[int, type[AdminError]] = {
    400: BadRequest,
    401: NotAuthorized,
    403: NotAuthorized,
    404: NotFound,
    405: NotAllowed,
    409: Conflict,
    412: PreconditionFailed,
}


def refusal(status: int, reason: str) -> AdminError:
    """Returns the error for an HTTP status of 400 or above."""
    kind = _KINDS.get(status, ServerError if status >= 500 else AdminError)
    return kind(f"{reason or 'refused'} (HTTP {status})", reason, status)
