"""Endpoints that return the description of all endpoints: as OpenAPI for programs, and as a web page for
people.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path

from magnetar.http.engine.message import JSON_TYPE, Request, Response
from magnetar.http.engine.page_files import PageFiles, TagOnTheWay, compressed, has, takes_gzip
from magnetar.http.routing import Application, Endpoint, Handler
from magnetar.security.authorization import BrokerOperation

_FILES = PageFiles(Path(__file__).parent)


def with_description(endpoints: Sequence[Endpoint]) -> Sequence[Endpoint]:
    """Returns the given endpoints, and further endpoints that return their description. The further endpoints
    are public, because the description reveals nothing about a broker.
    """

    known = TagOnTheWay()

    async def describe(application: Application, request: Request) -> Response:
        headers = [("Vary", "Accept-Encoding"), ("Cache-Control", "no-cache")]
        if known.tag:
            headers.append(("ETag", known.tag))
            if has(request, known.tag):
                return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
        # Imported with the first request: most brokers never get one.
        from magnetar.http.openapi.document import pieces

        text = known.noted(pieces(endpoints, application.version))
        if takes_gzip(request):
            headers.append(("Content-Encoding", "gzip"))
            return Response(HTTPStatus.OK, content_type=JSON_TYPE, headers=headers, pieces=compressed(text))
        return Response(HTTPStatus.OK, content_type=JSON_TYPE, headers=headers, pieces=text)

    return (
        *endpoints,
        _public("/openapi.json", describe, "this interface in the format of OpenAPI"),
        _public("/openapi", _file("page.html"), "this interface as a page"),
        _public("/openapi/page.js", _file("page.js"), "a file of the page"),
        _public("/openapi/trying.js", _file("trying.js"), "a file of the page"),
        _public("/openapi/page.css", _file("page.css"), "a file of the page"),
    )


def _public(path: str, handler: Handler, description: str) -> Endpoint:
    return Endpoint("GET", path, handler, description, BrokerOperation.GET_VERSION, public=True)


def _file(name: str) -> Handler:
    async def give(_application: Application, request: Request) -> Response:
        return _FILES.given(name, request)

    return give
