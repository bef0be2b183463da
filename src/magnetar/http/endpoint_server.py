"""The steps before the handler of a request is called, and the audit log.

The server checks the origin, finds the endpoint, and authenticates and authorizes the user.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import Generic
from urllib.parse import urlencode

from magnetar.broker.translation import to_broker_error
from magnetar.errors import (
    AuthorizationFailure,
    BrokerError,
    FeatureDisabled,
    InternalError,
    NotSupported,
    ServedElsewhere,
)
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.listening import Listening
from magnetar.http.engine.message import Request, Response, error_response, refusal
from magnetar.http.engine.origins import Hosts, Origins, claim_of
from magnetar.http.routing import Access, E, Found, Router
from magnetar.http.shapes.names import target_of
from magnetar.io.interfaces import Io
from magnetar.security.authentication import ANONYMOUS, BROKER, Principal
from magnetar.security.authorization import Operation

log = logging.getLogger("magnetar.http")
_DEFECT = "Internal error; see the log of the broker"
AUDIT = "magnetar.audit"
_audit_log = logging.getLogger(AUDIT)
_REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_MAX_PATH = 512


class EndpointServer(Listening, Generic[E]):
    """Serves endpoints as soon as ``_access`` is set; until then every answer is 503."""

    def __init__(
        self,
        io: Io,
        endpoints: Iterable[E],
        limits: HttpLimits | None = None,
        origins: Origins | None = None,
        hosts: Hosts | None = None,
    ) -> None:
        """:param origins: the origins of web pages that may send requests that change data; None: only
            loopback origins

        :param hosts: the accepted ``Host`` headers; None: only IP addresses, and names that public web pages
            cannot have
        """
        super().__init__(io, limits)
        self._hosts = hosts or Hosts()
        self._origins = origins or Origins()
        self._router = Router(endpoints)
        self._access: Access | None = None

    def reads_as_it_comes(self, method: str, path: str) -> bool:
        found = self._router.find(method, path)
        return isinstance(found, Found) and found.endpoint.reads_as_it_comes

    async def answer(self, request: Request) -> Response:
        """Authenticates the client, finds the endpoint and runs it; never raises."""
        access = self._access
        if access is None:
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "The broker is starting")
        refused = self._origins.refusal(request, request.local_port or self.port)
        if refused is not None:
            log.warning("request refused: a page of another origin sent it", extra=named(request))
            return error_response(HTTPStatus.FORBIDDEN, refused)
        found = self._router.find(request.method, request.path)
        endpoint = found.endpoint if isinstance(found, Found) else None
        if not access.authenticator.asks and not (endpoint is not None and endpoint.public):
            # If clients authenticate, a page has no credentials, whatever name it was loaded from.
            refused = self._hosts.refusal(request)
            if refused is not None:
                log.warning("request refused: its Host header names another host", extra=named(request))
                return error_response(HTTPStatus.FORBIDDEN, refused)
        who, answer = await self._who_asks(access, endpoint, request)
        if answer is None:
            if not isinstance(found, Found):
                return _not_served(request, found)
            answer = await self._carried_out(access, found, replace(request, principal=who))
        operation = endpoint.operation if endpoint is not None else None
        audited = endpoint is not None and (endpoint.changes or endpoint.audited)
        write_audit(request, who, operation, answer.status, changes=audited)
        return answer

    async def _who_asks(
        self, access: Access, endpoint: E | None, request: Request
    ) -> tuple[Principal, Response | None]:
        """Authenticates the client; returns its principal, and the response if authentication failed (None:
        the client is authenticated, or the endpoint needs no authentication).
        """
        if endpoint is not None and endpoint.public:
            return ANONYMOUS, None
        if access.open_metrics and endpoint is not None and endpoint.is_metrics:
            return BROKER, None
        if not access.authenticator.asks:
            return ANONYMOUS, None
        try:
            return await access.authenticator.authenticate(claim_of(request)), None
        except AuthorizationFailure as error:
            # A proxy that may not act for a role is answered like a role without permission.
            status = endpoint.refused_status if endpoint is not None else error.http_status
            return ANONYMOUS, error_response(status, str(error))
        except BrokerError as error:
            return ANONYMOUS, _failed(request, error)
        except Exception:
            log.exception("authentication of a request failed with an internal error", extra=named(request))
            return ANONYMOUS, error_response(HTTPStatus.INTERNAL_SERVER_ERROR, _DEFECT)

    async def _carried_out(self, access: Access, found: Found[E], request: Request) -> Response:
        try:
            reason = await _refusal(access, found, request.principal)
            if reason is not None:
                return error_response(found.endpoint.refused_status, reason)
            return await self._carry_out(found.endpoint, replace(request, variables=found.variables))
        except BrokerError as error:
            return _failed(request, error)
        except Exception as error:
            told = to_broker_error(error)
            if not isinstance(told, InternalError):
                return _failed(request, told)
            log.exception("request failed with an internal error", extra=named(request))
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, _DEFECT)

    @abstractmethod
    async def _carry_out(self, endpoint: E, request: Request) -> Response:
        """Runs an authorized request.

        :raises BrokerError: the request cannot be carried out
        """
        ...


async def _refusal(access: Access, found: Found[E], who: Principal) -> str | None:
    """Returns the reason why the principal lacks permission; None: the principal has permission."""
    endpoint, authorizer = found.endpoint, access.authorizer
    if not (authorizer.asks and endpoint.is_asked_for):
        return None
    target = target_of(endpoint.resource, found.variables)
    return await authorizer.refusal(who, endpoint.operation, target)


def _failed(request: Request, error: BrokerError) -> Response:
    if isinstance(error, ServedElsewhere):
        return _redirected(request, error)
    # A request for what the broker does not have, or is not set to do, is no failure of the broker's.
    of_broker = not isinstance(error, NotSupported | FeatureDisabled)
    if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR and of_broker:
        log.warning("request failed", extra=named(request), exc_info=error)
    return refusal(error)


def _redirected(request: Request, elsewhere: ServedElsewhere) -> Response:
    """Returns a redirection to the broker that serves the resource: with HTTPS if the request arrived over
    TLS, otherwise with HTTP.
    """
    url = elsewhere.http_url_tls if request.secure else elsewhere.http_url
    url = url or elsewhere.http_url or elsewhere.http_url_tls
    if url is None:
        return refusal(elsewhere)
    authoritative = "true" if elsewhere.authoritative else "false"
    kept = {name: value for name, value in request.query.items() if name not in elsewhere.without}
    query = urlencode({**kept, "authoritative": authoritative})
    location = f"{url}{request.path}?{query}"
    return Response(HTTPStatus.TEMPORARY_REDIRECT, headers=[("Location", location)])


def _not_served(request: Request, allowed: frozenset[str]) -> Response:
    if not allowed:
        return error_response(HTTPStatus.NOT_FOUND, f"No such path: {request.path}")
    methods = ",".join(sorted(allowed | {"OPTIONS"} | ({"HEAD"} if "GET" in allowed else frozenset())))
    if request.method == "OPTIONS":
        return Response(HTTPStatus.NO_CONTENT, headers=[("Allow", methods)])
    reason = f"Method {request.method} is not allowed at {request.path}"
    return error_response(HTTPStatus.METHOD_NOT_ALLOWED, reason, [("Allow", methods)])


def named(request: Request) -> dict[str, str]:
    """Returns the log fields of a request."""
    return {"method": request.method, "path": request.path}


def write_audit(
    request: Request, who: Principal, operation: Operation | None, status: int, *, changes: bool
) -> None:
    """Writes an audit line for an answered request that changes data, shows message contents, or was refused.

    The lines of the logger ``magnetar.audit`` contain role, address, operation, target and status, with the
    same field names in the text and the JSON format. They never contain a body, a header or a query.

    :param operation: the operation of the endpoint; None: the request matched no endpoint
    :param changes: whether the endpoint changes data or shows message contents
    """
    if not changes and status not in _REFUSALS:
        return
    refused = status >= HTTPStatus.BAD_REQUEST
    _audit_log.log(
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
