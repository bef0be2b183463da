"""The HTTP server of a broker: runs the handlers of the endpoint table."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from magnetar.broker.policies.honoured import NAMESPACE, TOPIC, warnings
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.errors import InvalidRequest
from magnetar.http.admin_pace import AdminLimits, AdminPace, TooFast
from magnetar.http.dashboard.endpoints import dashboard as endpoints_of_dashboard
from magnetar.http.endpoint_server import EndpointServer, named
from magnetar.http.endpoints.table import WHOLE
from magnetar.http.engine.connection import HttpLimits
from magnetar.http.engine.large_json import LARGE_BYTES, MOST_SPACE, parse_in_pieces
from magnetar.http.engine.message import Request, Response, error_response, warned
from magnetar.http.engine.origins import Hosts, Origins
from magnetar.http.engine.page_files import tagged
from magnetar.http.large_messages import LargeMessages
from magnetar.http.metrics.shared import Scrapes
from magnetar.http.openapi.endpoints import with_description
from magnetar.http.partitions import at_each_partition
from magnetar.http.routing import Application, Endpoint
from magnetar.http.shapes.names import topic_of
from magnetar.io.interfaces import Io
from magnetar.io.locks import Mutex
from magnetar.io.slices import PAUSE_SECONDS, gone_through
from magnetar.security.authorization import BROKER_ITSELF, BrokerOperation, NamespaceOperation, Resource

log = logging.getLogger("magnetar.http")
_ADMIN = "/admin/"
_OF_SUPERUSERS = BrokerOperation.SHUT_DOWN
"""An operation that only superusers may perform, which serves to recognize superusers."""


class HttpServer(EndpointServer[Endpoint]):
    """Serves the endpoint table for a broker; until the broker is set, every request is answered with 503."""

    def __init__(
        self,
        io: Io,
        limits: HttpLimits | None = None,
        origins: Origins | None = None,
        hosts: Hosts | None = None,
        *,
        dashboard: bool = True,
        admin_limits: AdminLimits | None = None,
    ) -> None:
        """:param origins: the origins of web pages that may send requests that change data; None: only
            loopback origins

        :param hosts: the accepted ``Host`` headers; None: only IP addresses, and names that public web pages
            cannot have
        :param dashboard: whether to serve the dashboard page at ``/``
        :param admin_limits: limits of the administration requests of each role; None: no limits
        """
        endpoints = (*with_description(WHOLE), *(endpoints_of_dashboard() if dashboard else ()))
        super().__init__(io, endpoints, limits, origins, hosts)
        self._large = Mutex(io.loop)
        self._messages = LargeMessages(io)
        self._scrapes = Scrapes(io.loop)
        self.admin_pace = AdminPace(io, admin_limits or AdminLimits())
        self._application: Application | None = None

    def serve(self, application: Application) -> None:

        async def figures() -> MetricsSnapshot:
            found = await application.process.figures()
            return replace(found, extra={**found.extra, **self.admin_pace.metrics()})

        self._application = replace(
            application,
            process=replace(application.process, figures=figures),
            messages=self._messages,
            scrapes=self._scrapes,
        )
        self._access = application.access

    async def stop(self, grace_seconds: float) -> None:
        await super().stop(grace_seconds)
        self._messages.close()

    async def _carry_out(self, endpoint: Endpoint, request: Request) -> Response:
        limited = self.admin_pace.limits_anything and endpoint.path.startswith(_ADMIN)
        if endpoint.public or not limited:
            return await self._do(endpoint, request)
        assert self._access is not None
        who, asked = request.principal, self._access.authenticator.asks
        if asked and await self._access.authorizer.refusal(who, _OF_SUPERUSERS, BROKER_ITSELF) is None:
            # Superusers are not limited; without authorization every role is one.
            return await self._do(endpoint, request)
        key = f"role {who.named}" if asked else request.peer.rpartition(":")[0]
        try:
            await self.admin_pace.admit(key)
        except TooFast as error:
            return error_response(error.http_status, str(error), [("Retry-After", str(error.seconds))])
        if not asked:
            # Other brokers may use the same address, and requests in progress may wait for theirs.
            return await self._do(endpoint, request)
        async with self.admin_pace.turn(key):
            return await self._do(endpoint, request)

    async def _do(self, endpoint: Endpoint, request: Request) -> Response:
        assert self._application is not None
        application = self._application
        asked = replace(application, admin=application.admin.asked_by(request.principal))
        if endpoint.asked_of_cluster:
            await asked.admin.brokers.check_cluster(topic_of(request.variables))
        if endpoint.asked_of_owner:
            await asked.admin.brokers.check_here(
                topic_of(request.variables), authoritative=request.flag("authoritative")
            )
            at_each = await at_each_partition(asked, endpoint, request)
            if at_each is not None:
                return at_each
        if len(request.body) <= LARGE_BYTES:
            return await _carry_out(asked, endpoint, request)
        return await self._answer_large(asked, endpoint, request)

    async def _answer_large(self, application: Application, endpoint: Endpoint, request: Request) -> Response:
        """Handles a request with a large body. Such requests are handled one after another, because the
        parsed value can be many times larger than the body.
        """
        async with self._large:
            if request.body[:MOST_SPACE].isspace() and len(request.body) > MOST_SPACE:
                reason = f"The body begins with more than {MOST_SPACE} bytes of white space"
                return error_response(HTTPStatus.BAD_REQUEST, reason)
            try:
                value = await gone_through(self.io, "json", parse_in_pieces(request.body), PAUSE_SECONDS)
            except (ValueError, RecursionError, InvalidRequest) as error:
                parse = partial(_raise, error)
            else:
                parse = partial(_give, value)
            return await _carry_out(application, endpoint, replace(request, parse=parse))


async def _carry_out(application: Application, endpoint: Endpoint, request: Request) -> Response:
    """Runs the handler of an endpoint; adds warnings to the response and to the log about values in the
    request that have no effect.
    """
    answer = await endpoint.handler(application, request)
    if endpoint.tagged:
        return tagged(request, answer)
    if not endpoint.changes:
        return answer
    sentences = without_effect(
        endpoint,
        request,
        authorization=application.access.authorizer.asks,
        filters=application.process.settings.get("allowOverrideEntryFilters") == "true",
    )
    for sentence in sentences:
        log.warning(sentence, extra=named(request))
    return warned(answer, sentences)


def _raise(error: Exception, _body: object) -> object:
    raise error


def _give(value: object, _body: object) -> object:
    return value


def without_effect(endpoint: Endpoint, request: Request, *, authorization: bool, filters: bool) -> list[str]:
    """Returns a sentence for each value in a request that has no effect in this release.

    :param authorization: whether authorization is enabled
    :param filters: whether entry filters of namespaces and topics have an effect
    """
    if endpoint.operation is NamespaceOperation.CREATE_NAMESPACE:
        given = request.json() if request.has_value else None
        return warnings(
            NAMESPACE,
            _set_policies(given) if isinstance(given, dict) else (),
            authorization=authorization,
            filters=filters,
        )
    table = NAMESPACE if endpoint.resource is Resource.NAMESPACE else TOPIC
    return warnings(table, (endpoint.sets,), authorization=authorization, filters=filters)


def _set_policies(policies: dict[str, object]) -> Iterable[str]:
    return (name for name, value in policies.items() if value is not None)
