"""The HTTP server: listens, routes, turns errors into answers, stops."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from magnetar.errors import AuthorizationFailure, BrokerError, NotSupported, ServedElsewhere
from magnetar.http.audit import record
from magnetar.http.dashboard.endpoints import dashboard as endpoints_of_dashboard
from magnetar.http.endpoints.table import ENDPOINTS
from magnetar.http.engine.bodies import Bodies
from magnetar.http.engine.claims import claim_of
from magnetar.http.engine.connection import HttpConnection, HttpLimits
from magnetar.http.engine.large_json import LARGE_BYTES, parse_large
from magnetar.http.engine.message import Request, Response, error_response, refusal
from magnetar.http.engine.origins import Origins
from magnetar.http.openapi.endpoints import with_description
from magnetar.http.partitions import at_each_partition
from magnetar.http.routing import Application, Endpoint, Found, Router
from magnetar.http.shapes.names import target_of, topic_of
from magnetar.http.warnings import warned, without_effect
from magnetar.io.interfaces import Io, Listener, ListeningNetwork, Worker
from magnetar.io.jobs import run_job
from magnetar.io.mutex import Mutex
from magnetar.security.principal import ANONYMOUS, BROKER, Principal

log = logging.getLogger("magnetar.http")

_DEFECT = "An internal error; the log of the broker has the details"


class HttpServer:
    """Serves the endpoint table for one broker, from the moment it is given one."""

    def __init__(
        self,
        io: Io,
        limits: HttpLimits | None = None,
        origins: Origins | None = None,
        *,
        dashboard: bool = True,
    ) -> None:
        """:param origins: which pages may change something; None: only those of the loopback addresses

        :param dashboard: whether there is a page at ``/``
        """
        self.io = io
        self.limits = limits or HttpLimits()
        self.bodies = Bodies(self.limits.bodies_bytes)
        self._origins = origins or Origins()
        self._large = Mutex(io.loop)
        self._parser: Worker | None = None
        self._application: Application | None = None
        self._router = Router(
            (*with_description(ENDPOINTS), *(endpoints_of_dashboard() if dashboard else ()))
        )
        self._connections: dict[HttpConnection, str] = {}
        """With their clients' addresses."""
        self._of_address: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._stopping = False
        self._empty: Any = None

    @property
    def port(self) -> int:
        """The port it listened on first; 0 before :meth:`start`."""
        return self._listeners[0].port if self._listeners else 0

    async def start(self, host: str, port: int, network: ListeningNetwork | None = None) -> int:
        """Begins to listen on one more address; port 0 takes a free one.

        Until :meth:`serve` all answers are 503.

        :param network: None: the plain one
        :returns: the port
        :raises OSError: the address cannot be used
        """
        through: ListeningNetwork = network or self.io.network
        listener = await through.listen(host, port, lambda: HttpConnection(self))
        self._listeners.append(listener)
        return listener.port

    def serve(self, application: Application) -> None:
        self._application = application

    async def stop(self, grace_seconds: float) -> None:
        """Takes no more requests and waits for those in progress, at most ``grace_seconds``."""
        self._stopping = True
        for listener in self._listeners:
            listener.close()
        for connection in tuple(self._connections):
            connection.close_when_idle()
        if self._connections:
            self._empty = self.io.loop.create_future()
            expiry = self.io.loop.call_later(grace_seconds, self._grace_ended)
            await self._empty
            expiry.cancel()
        if self._parser is not None:
            self._parser.close()
            self._parser = None

    def _grace_ended(self) -> None:
        log.warning("requests were still in progress", extra={"connections": len(self._connections)})
        self._settle_empty()

    def _settle_empty(self) -> None:
        if self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    def admit(self, connection: HttpConnection) -> bool:
        if self._stopping or len(self._connections) >= self.limits.connections:
            return False
        host = connection.host
        of_address = self._of_address.get(host, 0)
        if 0 < self.limits.connections_of_address <= of_address:
            return False
        self._connections[connection] = host
        self._of_address[host] = of_address + 1
        return True

    def forget(self, connection: HttpConnection) -> None:
        host = self._connections.pop(connection, None)
        if host is None:
            return
        self._of_address[host] -= 1
        if not self._of_address[host]:
            del self._of_address[host]
        if not self._connections:
            self._settle_empty()

    async def answer(self, request: Request) -> Response:
        """Finds out who asks, finds the endpoint and runs it; never raises."""
        application = self._application
        if application is None:
            return error_response(HTTPStatus.SERVICE_UNAVAILABLE, "The broker is starting")
        refused = self._origins.refusal(request, request.local_port or self.port)
        if refused is not None:
            log.warning("request of a foreign page refused", extra=_named(request))
            return error_response(HTTPStatus.FORBIDDEN, refused)
        found = self._router.find(request.method, request.path)
        endpoint = found.endpoint if isinstance(found, Found) else None
        who, answer = await self._who_asks(application, endpoint, request)
        if answer is None:
            if not isinstance(found, Found):
                return _not_served(request, found)
            answer = await self._carried_out(application, found, replace(request, principal=who))
        operation = endpoint.operation if endpoint is not None else None
        record(request, who, operation, answer.status, changes=endpoint is not None and endpoint.changes)
        return answer

    async def _who_asks(
        self, application: Application, endpoint: Endpoint | None, request: Request
    ) -> tuple[Principal, Response | None]:
        """Who asks, and the answer to who may not even do that."""
        access = application.access
        if endpoint is not None and endpoint.public:
            return ANONYMOUS, None
        if access.open_metrics and endpoint is not None and endpoint.is_metrics:
            return BROKER, None
        if not access.authenticator.asks:
            return ANONYMOUS, None
        try:
            return await access.authenticator.authenticate(claim_of(request)), None
        except AuthorizationFailure as error:
            # A proxy that may not speak for somebody is told like anybody who may not ask.
            status = endpoint.refused_status if endpoint is not None else error.http_status
            return ANONYMOUS, error_response(status, str(error))
        except BrokerError as error:
            return ANONYMOUS, self._failed(request, error)
        except Exception:
            log.exception("nobody can say who asks", extra=_named(request))
            return ANONYMOUS, error_response(HTTPStatus.INTERNAL_SERVER_ERROR, _DEFECT)

    async def _carried_out(self, application: Application, found: Found, request: Request) -> Response:
        try:
            return await self._answer_endpoint(application, found, request)
        except BrokerError as error:
            return self._failed(request, error)
        except Exception:
            log.exception("request failed by a defect", extra=_named(request))
            return error_response(HTTPStatus.INTERNAL_SERVER_ERROR, _DEFECT)

    @staticmethod
    def _failed(request: Request, error: BrokerError) -> Response:
        if isinstance(error, ServedElsewhere):
            return _redirected(request, error)
        if error.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(error, NotSupported):
            log.warning("request failed", extra=_named(request), exc_info=error)
        return refusal(error)

    async def _answer_endpoint(self, application: Application, found: Found, request: Request) -> Response:
        endpoint, authorizer = found.endpoint, application.access.authorizer
        if authorizer.asks and endpoint.is_asked_for:
            target = target_of(endpoint.resource, found.variables)
            reason = await authorizer.refusal(request.principal, endpoint.operation, target)
            if reason is not None:
                return error_response(endpoint.refused_status, reason)
        asked = replace(application, admin=application.admin.asked_by(request.principal))
        prepared = replace(request, variables=found.variables)
        if endpoint.asked_of_owner:
            await asked.admin.brokers.check_here(
                topic_of(found.variables), authoritative=prepared.flag("authoritative")
            )
            at_each = await at_each_partition(asked, endpoint, prepared)
            if at_each is not None:
                return at_each
        if len(request.body) <= LARGE_BYTES:
            return await _carry_out(asked, endpoint, prepared)
        return await self._answer_large(asked, endpoint, prepared)

    async def _answer_large(self, application: Application, endpoint: Endpoint, request: Request) -> Response:
        """One after another: what a large body is parsed to may be many times its size."""
        async with self._large:
            if self._parser is None:
                self._parser = self.io.start_worker("http-json")
            try:
                value = await run_job(self.io.loop, self._parser, partial(parse_large, request.body))
            except (ValueError, RecursionError) as error:
                parse = partial(_raise, error)
            else:
                parse = partial(_give, value)
            return await _carry_out(application, endpoint, replace(request, parse=parse))


async def _carry_out(application: Application, endpoint: Endpoint, request: Request) -> Response:
    """Runs the handler; what was changed is logged, and what has no effect is told."""
    answer = await endpoint.handler(application, request)
    if not endpoint.changes:
        return answer
    sentences = without_effect(
        endpoint,
        request,
        authorization=application.access.authorizer.asks,
        filters=application.process.settings.get("allowOverrideEntryFilters") == "true",
    )
    for sentence in sentences:
        log.warning(sentence, extra=_named(request))
    return warned(answer, sentences)


def _redirected(request: Request, elsewhere: ServedElsewhere) -> Response:
    """Who came by TLS is sent on by TLS, and nobody else is."""
    url = elsewhere.http_url_tls if request.secure else elsewhere.http_url
    url = url or elsewhere.http_url or elsewhere.http_url_tls
    if url is None:
        return refusal(elsewhere)
    authoritative = "true" if elsewhere.authoritative else "false"
    kept = {name: value for name, value in request.query.items() if name not in elsewhere.without}
    query = urlencode({**kept, "authoritative": authoritative})
    location = f"{url}{request.path}?{query}"
    return Response(HTTPStatus.TEMPORARY_REDIRECT, headers=[("Location", location)])


def _raise(error: Exception, _body: object) -> Any:
    raise error


def _give(value: Any, _body: object) -> Any:
    return value


def _not_served(request: Request, allowed: frozenset[str]) -> Response:
    if not allowed:
        return error_response(HTTPStatus.NOT_FOUND, f"Nothing is served at {request.path}")
    methods = ",".join(sorted(allowed | {"OPTIONS"} | ({"HEAD"} if "GET" in allowed else frozenset())))
    if request.method == "OPTIONS":
        return Response(HTTPStatus.NO_CONTENT, headers=[("Allow", methods)])
    reason = f"{request.method} is not served at {request.path}"
    return error_response(HTTPStatus.METHOD_NOT_ALLOWED, reason, [("Allow", methods)])


def _named(request: Request) -> dict[str, str]:
    return {"method": request.method, "path": request.path}
