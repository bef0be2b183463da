"""Requests that an HTTP server may get: good ones, strange ones, and what is none."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from fuzz_wire import TEXTS, mutated

from magnetar.http.endpoints.table import ENDPOINTS

_PIECES = ["public", "default", "f0", "f1", "good", "standalone", "persistent", "non-persistent", "sample"]
_STRANGE = ["%2F", "..", "%00", "%zz", "%ff%fe", "a-partition-1", "a-partition-", "é", "x" * 300, "*", "{a}"]
_STRANGE += ["%F0%9F%92%A9", "+", "a;b", "%25", "__change_events", ".", "%20"]

_FLAGS = ["force", "getPreciseBacklog", "subscriptionBacklogSize", "metadata", "checkAllowAutoCreation"]

_HEADERS = [
    b"Content-Type: application/json",
    b"Content-Type: application/vnd.partitioned-topic-metadata+json",
    b"Content-Type: \xff\xfe",
    b"Accept-Encoding: gzip, deflate, br",
    b"Accept: */*",
    b"Expect: 100-continue",
    b"Connection: close",
    b"Connection: upgrade\r\nUpgrade: websocket",
    b"X-Long: " + b"y" * 9000,
    b"Range: bytes=0-1",
    b"no colon here",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: -1",
    b"Transfer-Encoding: chunked",
    b"Content-Length: 3\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 0",
]

_ASKED = [endpoint for endpoint in ENDPOINTS if not endpoint.path.endswith("/brokers/shutdown")]
"""All but the one that does what it says: it ends the broker."""


def has_two_lengths(request: bytes) -> bool:
    """Whether readers may differ about where the request ends."""
    head = request.partition(b"\r\n\r\n")[0].lower()
    return b"\r\ncontent-length:" in head and b"\r\ntransfer-encoding:" in head


class HttpTalker:
    def __init__(self, random: Random) -> None:
        self._random = random

    def say(self) -> tuple[bytes, bool]:
        """A request, and whether it is one that an answer is owed to."""
        random = self._random
        if random.random() < 0.05:
            return random.randbytes(random.randrange(1, 200)), False
        endpoint = random.choice(_ASKED)
        path = self._path(random.choice((endpoint.path, *endpoint.aliases)))
        method = endpoint.method if random.random() < 0.9 else random.choice(("GET", "POST", "BREW", "HEAD"))
        body = self._body() if random.random() < 0.5 else b""
        lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: x"]
        if body:
            lines.append(b"Content-Length: %d" % len(body))
        strange = random.random() < 0.2
        if strange:
            lines += random.choices(_HEADERS, k=random.choice((1, 2)))
        elif body:
            lines.append(random.choice(_HEADERS[:2]))
        request = b"\r\n".join(lines) + b"\r\n\r\n" + body
        if random.random() < 0.2:
            return mutated(random, request), False
        return request, not strange

    def _path(self, pattern: str) -> str:
        random = self._random
        pieces = []
        for piece in pattern.split("/"):
            if piece.startswith("{") or random.random() < 0.02:
                piece = random.choice(_PIECES if random.random() < 0.85 else _STRANGE)
            pieces.append(piece)
        path = "/".join(pieces)
        if random.random() < 0.3:
            path += f"?{random.choice(_FLAGS)}={random.choice(('true', 'false', '', '%00', 'x' * 50))}"
        return path.encode("ascii", "ignore").decode()

    def _value(self, depth: int = 0) -> Any:
        random = self._random
        kind = random.randrange(9 if depth < 3 else 6)
        if kind == 0:
            return random.choice((0, 1, 2, 3, -1, True, 2**31, 2**63, 10**40, 1.5))
        if kind == 1:
            return None
        if kind < 6:
            return random.choice((*TEXTS[:-2], "\ud800"))
        if kind == 6:
            return [self._value(depth + 1) for _ in range(random.randrange(4))]
        return {random.choice(TEXTS[:-2]): self._value(depth + 1) for _ in range(random.randrange(4))}

    def _body(self) -> bytes:
        random = self._random
        kind = random.random()
        if kind < 0.1:
            return b"[" * 100_000
        if kind < 0.2:
            return random.randbytes(random.randrange(1, 100))
        if kind < 0.3:
            return random.choice(
                (b"NaN", b"1" * 5000, b'"\\ud800"', b"{", b"3", b"0", b"\xef\xbb\xbf3", b"-1")
            )
        if kind < 0.6:
            partitions = random.choice((1, 2, 0, -1, 2**31, 10**30, "3", None, 1.0, True))
            return json.dumps({"partitions": partitions, "properties": self._value()}).encode()
        return json.dumps(self._value()).encode()
