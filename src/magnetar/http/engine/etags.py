"""Answers that whoever has them need not be sent again (RFC 9110, 8.8.3 and 13.1.2).

A tag is made of the bytes of the answer, so it is right whatever they were made of, on every broker and
after a restart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from http import HTTPStatus

from magnetar.http.engine.message import Request, Response

LARGEST_BYTES = 64 << 10
"""Of an answer that is given a tag: to hash it takes less than a tenth of a millisecond."""
_DIGEST_BYTES = 12
_ASK_AGAIN = ("Cache-Control", "no-cache")
"""It may be kept, and is asked for each time."""


def tag_of(data: bytes) -> str:
    return _quoted(hashlib.blake2b(data, digest_size=_DIGEST_BYTES))


def has(request: Request, tag: str) -> bool:
    """Whether whoever asks has what ``tag`` stands for, by ``If-None-Match``."""
    said = request.headers.get("if-none-match", "").strip()
    if said == "*":
        return True
    # Who compresses on the way makes tags weak; they are compared weakly.
    return tag in (each.strip().removeprefix("W/") for each in said.split(","))


def tagged(request: Request, answer: Response) -> Response:
    """The answer with its tag; 304 to who has it. What is no success, large, or in pieces has none."""
    whole = answer.pieces is None and answer.streamed is None and 0 < len(answer.body) <= LARGEST_BYTES
    if answer.status != HTTPStatus.OK or not whole:
        return answer
    tag = tag_of(answer.body)
    headers = (*answer.headers, _ASK_AGAIN, ("ETag", tag))
    if has(request, tag):
        return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
    return replace(answer, headers=headers)


class TagOnTheWay:
    """The tag of a text that is always the same and takes long to make: known once it was made whole."""

    def __init__(self) -> None:
        self.tag = ""
        """Empty: nobody was sent all of it yet."""

    def noted(self, pieces: Iterable[str]) -> Iterator[str]:
        """The same pieces."""
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for piece in pieces:
            digest.update(piece.encode())
            yield piece
        self.tag = _quoted(digest)


def _quoted(digest: hashlib.blake2b) -> str:
    return f'"{digest.hexdigest()}"'
