"""The files of the broker's own web pages; entity tags and compression of responses. An entity tag avoids
sending an unchanged response again (RFC 9110, sections 8.8.3 and 13.1.2). It is a hash of the response's
bytes, so it is the same on every broker and after a restart.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

from magnetar.http.engine.message import Request, Response, error_response
from magnetar.http.gzipped import GZIP_BITS, GZIP_LEVEL
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
"""The content security policy of pages without images: permits only the broker's own files, nothing inline,
and no frames around the page.
"""
_POLICY_WITH_IMAGES = f"{_POLICY}; img-src 'self'"
_HEADERS = (
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cache-Control", "no-cache"),
    ("Vary", "Accept-Encoding"),
)
LARGEST_BYTES = 64 << 10
"""Larger responses, in bytes, get no entity tag; hashing one of this size takes less than a tenth of a
millisecond.
"""
_DIGEST_BYTES = 12
_ASK_AGAIN = ("Cache-Control", "no-cache")
"""A header that permits clients to cache a response, but requires that they revalidate it at each use."""


@dataclass(frozen=True, slots=True)
class _File:
    type: str
    plain: bytes
    gzipped: bytes
    tag: str


class PageFiles:
    """The files of web pages in a folder."""

    def __init__(self, folder: Path, *, images: bool = False) -> None:
        """The files are read at the first request.

        :param images: whether the pages use images
        """
        self._folder = folder
        self._policy = _POLICY_WITH_IMAGES if images else _POLICY
        self._known: Mapping[str, _File] | None = None

    def given(self, name: str, request: Request) -> Response:
        """Returns a file, compressed if possible; 304 if the client already has the file, 404 if the file
        does not exist.
        """
        if self._known is None:
            self._known = _read(self._folder)
        file = self._known.get(name)
        if file is None:
            return error_response(HTTPStatus.NOT_FOUND, f"No such path: {request.path}")
        headers = [("Content-Security-Policy", self._policy), *_HEADERS, ("ETag", file.tag)]
        if has(request, file.tag):
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
            found[each.name] = _File(kind, plain, gzipped, tag_of(plain))
    return found


def takes_gzip(request: Request) -> bool:
    """Whether the client accepts compressed responses."""
    for offered in request.headers.get("accept-encoding", "").split(","):
        coding, _, quality = offered.partition(";")
        if coding.strip().lower() == "gzip":
            return quality.replace(" ", "").lower() not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def compressed(pieces: Iterable[str]) -> Iterator[bytes]:
    """Compresses a text with gzip; for each piece of the text, yields a piece of the result, which can be
    empty.
    """
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_BITS)
    for piece in pieces:
        yield packer.compress(piece.encode())
    yield packer.flush()


def tag_of(data: bytes) -> str:
    return _quoted(hashlib.blake2b(data, digest_size=_DIGEST_BYTES))


def has(request: Request, tag: str) -> bool:
    """Whether the client already has the response with this entity tag, according to ``If-None-Match``."""
    said = request.headers.get("if-none-match", "").strip()
    if said == "*":
        return True
    # Proxies that compress answers make tags weak, so the comparison is weak.
    return tag in (each.strip().removeprefix("W/") for each in said.split(","))


def tagged(request: Request, answer: Response) -> Response:
    """Returns the response with an entity tag, or 304 if the client already has the response. Errors, large
    responses and responses in pieces get no tag.
    """
    whole = answer.pieces is None and answer.streamed is None and 0 < len(answer.body) <= LARGEST_BYTES
    if answer.status != HTTPStatus.OK or not whole:
        return answer
    tag = tag_of(answer.body)
    headers = (*answer.headers, _ASK_AGAIN, ("ETag", tag))
    if has(request, tag):
        return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
    return replace(answer, headers=headers)


class TagOnTheWay:
    """The entity tag of a constant text that is expensive to create; the tag is known once the text was
    created completely.
    """

    def __init__(self) -> None:
        self.tag = ""
        """The tag; empty until the whole text was created once."""

    def noted(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yields the pieces of the text unchanged, and computes the tag from them."""
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for piece in pieces:
            digest.update(piece.encode())
            yield piece
        self.tag = _quoted(digest)


def _quoted(digest: hashlib.blake2b) -> str:
    return f'"{digest.hexdigest()}"'
