"""Requests that end in two places, for a proxy before the broker that takes the other one."""

from __future__ import annotations

from target import FOREIGN, Target, path_of

_HIDDEN = f"GET /admin/v2/{path_of(FOREIGN)}/stats HTTP/1.1\r\nHost: broker\r\n\r\n".encode()
_HEADS = (
    b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4",
    b"Content-Length: 4\r\nContent-Length: 5",
    b"Content-Length: +4",
    b"Content-Length: 4, 5",
    b"Transfer-Encoding: xchunked",
    b"Transfer-Encoding: chunked, identity",
    b"Transfer-Encoding : chunked",
    b"Content-Length: 99999999999999999999999",
)


def attack(target: Target) -> None:
    for head in _HEADS:
        request = b"POST /admin/v2/brokers/ready HTTP/1.1\r\nHost: broker\r\n" + head + b"\r\n\r\n0\r\n\r\n"
        answer, closed = target.send(request + _HIDDEN)
        assert answer.count(b"HTTP/1.1 ") == 1, (head, answer)
        assert answer[9:12] in (b"400", b"413", b"501"), (head, answer)
        assert closed, head
