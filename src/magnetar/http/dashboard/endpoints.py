"""Endpoints of the page at ``/``: its files, and the events that an open page reads.

These endpoints are internal to the page, so they are not in the table of endpoints.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from magnetar.http.dashboard.views import Views
from magnetar.http.endpoints.namespace_policies import reads
from magnetar.http.engine.message import Request, Response, json_response
from magnetar.http.engine.page_files import PageFiles
from magnetar.http.routing import Application, Endpoint
from magnetar.http.shapes.names import namespace_of, topic_of
from magnetar.security.authorization import BrokerOperation as B
from magnetar.security.authorization import NamespaceOperation as N
from magnetar.security.authorization import PolicyName
from magnetar.security.authorization import TopicOperation as T

_FILES = PageFiles(Path(__file__).parent / "page", images=True)
_EVENTS = "/dashboard/events"
_ACCESS = "/dashboard/access"
_POLICIES = "/dashboard/policies"
_ELSEWHERE = {421: "another broker serves the topic"}


async def _start(_application: Application, request: Request) -> Response:
    return _FILES.given("page.html", request)


async def _part(_application: Application, request: Request) -> Response:
    """Returns a file of the page: a JavaScript module, the style sheet or the icon."""
    return _FILES.given(request.variables["file"], request)


def dashboard() -> Sequence[Endpoint]:
    """Returns the endpoints of the page for one HTTP server."""
    views = Views()
    return (
        Endpoint("GET", "/", _start, "the dashboard", B.GET_VERSION, public=True),
        Endpoint("GET", "/dashboard/{file}", _part, "a file of the dashboard", B.GET_VERSION, public=True),
        Endpoint("GET", _ACCESS, access, "whether roles need permissions, and the role", B.GET_VERSION),
        Endpoint("GET", f"{_ACCESS}/names", reachable, "what the role may see", B.GET_VERSION),
        Endpoint("GET", "/dashboard/load/brokers", brokers, "brokers and their load", B.GET_LOAD),
        Endpoint(
            "GET",
            f"{_POLICIES}/{{tenant}}/{{namespace}}",
            namespace_policies,
            "policies of a namespace, and the effective values",
            reads(PolicyName.ALL),
            (f"{_POLICIES}/{{tenant}}/{{cluster}}/{{namespace}}",),
        ),
        Endpoint(
            "GET",
            f"{_POLICIES}/topic/{{domain}}/{{tenant}}/{{namespace}}/{{topic}}",
            topic_policies,
            "policies of a topic, and the effective values",
            reads(PolicyName.ALL),
            refusals={405: "topic policies are disabled"},
        ),
        Endpoint("GET", f"{_EVENTS}/broker", views.overview, "figures of the broker, as events", B.GET_LOAD),
        Endpoint("GET", f"{_EVENTS}/topics", views.topics, "figures of the topics, as events", B.GET_LOAD),
        Endpoint(
            "GET",
            f"{_EVENTS}/topics/{{tenant}}/{{namespace}}",
            views.topics,
            "figures of the topics of a namespace, as events",
            N.GET_TOPICS,
            (f"{_EVENTS}/topics/{{tenant}}/{{cluster}}/{{namespace}}",),
        ),
        Endpoint(
            "GET",
            f"{_EVENTS}/topic/{{domain}}/{{tenant}}/{{namespace}}/{{topic}}",
            views.topic,
            "figures of a topic, as events",
            T.GET_STATS,
            (f"{_EVENTS}/topic/{{domain}}/{{tenant}}/{{cluster}}/{{namespace}}/{{topic}}",),
            refusals=_ELSEWHERE,
            anywhere=True,
        ),
    )


async def access(application: Application, request: Request) -> Response:
    role = request.principal.original_role or request.principal.role
    return json_response({"authorization": application.access.authorizer.asks, "role": role})


async def reachable(application: Application, request: Request) -> Response:
    return json_response(await application.admin.namespaces.reachable(request.principal))


async def brokers(application: Application, _request: Request) -> Response:
    return json_response(application.admin.load.brokers())


async def namespace_policies(application: Application, request: Request) -> Response:
    return json_response(dict(await application.admin.namespaces.all_of(namespace_of(request.variables))))


async def topic_policies(application: Application, request: Request) -> Response:
    """Returns the policies that are set for a topic, and the policies in effect from all levels.

    :raises TopicNotFound: the topic does not exist
    :raises PreconditionFailed: the topic is a partition, which has no policies of its own
    :raises NotAllowed: topic policies are disabled
    """
    return json_response(dict(await application.admin.topic_policies.all_of(topic_of(request.variables))))
