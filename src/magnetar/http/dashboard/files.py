"""What the page consists of, as browsers get it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files

from magnetar.http.engine.compression import compressed, takes_gzip
from magnetar.http.engine.message import Request, Response, error_response
from magnetar.http.routing import Application

START = "page.html"

_TYPES: Mapping[str, str] = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing from elsewhere, nothing inline, no page around it, and no text that becomes a script."""

_HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
    ("Vary", "Accept-Encoding"),
)


@dataclass(frozen=True, slots=True)
class _File:
    type: str
    plain: bytes
    gzipped: bytes
    tag: str


@cache
def _all() -> Mapping[str, _File]:
    """By name, read once."""
    found: dict[str, _File] = {}
    for each in files("magnetar.http.dashboard").joinpath("page").iterdir():
        kind = _TYPES.get(each.name.rpartition(".")[2])
        if kind is not None:
            plain = each.read_bytes()
            tag = f'"{hashlib.sha256(plain).hexdigest()[:24]}"'
            found[each.name] = _File(kind, plain, b"".join(compressed([plain.decode()])), tag)
    return found


async def start(_application: Application, request: Request) -> Response:
    """The page itself."""
    return _given(START, request)


async def part(_application: Application, request: Request) -> Response:
    """A module, the style, or the icon."""
    return _given(request.variables["file"], request)


def _given(name: str, request: Request) -> Response:
    file = _all().get(name)
    if file is None:
        return error_response(HTTPStatus.NOT_FOUND, f"Nothing is served at {request.path}")
    headers = [*_HEADERS, ("ETag", file.tag)]
    if request.headers.get("if-none-match") == file.tag:
        return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
    if takes_gzip(request):
        headers.append(("Content-Encoding", "gzip"))
        return Response(HTTPStatus.OK, file.gzipped, file.type, headers)
    return Response(HTTPStatus.OK, file.plain, file.type, headers)
