"""The files of the broker's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

from magnetar.http.engine import etags
from magnetar.http.engine.compression import compressed, takes_gzip
from magnetar.http.engine.message import Request, Response, error_response
from magnetar.lazy_dataclass import dataclass

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
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""The content security policy: only the page's own files, nothing inline, no frames, and no images."""
_POLICY_WITH_IMAGES = f"{_POLICY}; img-src 'self'"

_HEADERS = (
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


class PageFiles:
    """The files of a folder whose types pages consist of."""

    def __init__(self, folder: Path, *, images: bool = False) -> None:
        """Reads no file before the first request.

        :param images: whether the pages show images from the folder
        """
        self._folder = folder
        self._policy = _POLICY_WITH_IMAGES if images else _POLICY
        self._known: Mapping[str, _File] | None = None

    def given(self, name: str, request: Request) -> Response:
        """Returns a file, compressed if possible; 304 if the client has it, 404 if it does not exist."""
        if self._known is None:
            self._known = _read(self._folder)
        file = self._known.get(name)
        if file is None:
            return error_response(HTTPStatus.NOT_FOUND, f"No such path: {request.path}")
        headers = [("Content-Security-Policy", self._policy), *_HEADERS, ("ETag", file.tag)]
        if etags.has(request, file.tag):
            return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
        if takes_gzip(request):
            headers.append(("Content-Encoding", "gzip"))
            return Response(HTTPStatus.OK, file.gzipped, file.type, headers)
        return Response(HTTPStatus.OK, file.plain, file.type, headers)


def _read(folder: Path) -> Mapping[str, _File]:
    found: dict[str, _File] = {}
    for each in folder.iterdir():
        kind = _TYPES.get(each.name.rpartition(".")[2])
        if kind is not None:
            plain = each.read_bytes()
            gzipped = b"".join(compressed([plain.decode()]))
            found[each.name] = _File(kind, plain, gzipped, etags.tag_of(plain))
    return found
