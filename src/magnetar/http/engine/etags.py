"""Entity tags, which save sending an unchanged answer again (RFC 9110, 8.8.3 and 13.1.2).

A tag is a hash of the answer's bytes, so it is correct on every broker and after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from http import HTTPStatus

from magnetar.http.engine.message import Request, Response

LARGEST_BYTES = 64 << 10
"""The largest answer with a tag: hashing it takes less than a tenth of a millisecond."""
_DIGEST_BYTES = 12
_ASK_AGAIN = ("Cache-Control", "no-cache")
"""Clients may keep the answer, and revalidate it each time."""


def tag_of(data: bytes) -> str:
    return _quoted(hashlib.blake2b(data, digest_size=_DIGEST_BYTES))


def has(request: Request, tag: str) -> bool:
    """Whether the client has the answer with this tag, according to ``If-None-Match``."""
    said = request.headers.get("if-none-match", "").strip()
    if said == "*":
        return True
    # Proxies that compress answers make tags weak, so the comparison is weak.
    return tag in (each.strip().removeprefix("W/") for each in said.split(","))


def tagged(request: Request, answer: Response) -> Response:
    """Returns the answer with its tag, or 304 if the client has it. Errors, large answers and answers in
    pieces have no tag."""
    whole = answer.pieces is None and answer.streamed is None and 0 < len(answer.body) <= LARGEST_BYTES
    if answer.status != HTTPStatus.OK or not whole:
        return answer
    tag = tag_of(answer.body)
    headers = (*answer.headers, _ASK_AGAIN, ("ETag", tag))
    if has(request, tag):
        return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
    return replace(answer, headers=headers)


class TagOnTheWay:
    """The tag of a constant text that takes long to create: known once it was created completely."""

    def __init__(self) -> None:
        self.tag = ""
        """Empty until the whole text was created once."""

    def noted(self, pieces: Iterable[str]) -> Iterator[str]:
        """Yields the same pieces, and computes the tag."""
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for piece in pieces:
            digest.update(piece.encode())
            yield piece
        self.tag = _quoted(digest)


def _quoted(digest: hashlib.blake2b) -> str:
    return f'"{digest.hexdigest()}"'
