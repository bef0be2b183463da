"""Publishes over one WebSocket at a fixed rate and consumes over another; prints the results as JSON.

A separate process, so that the servers' processor time does not include it. Frames are masked with zeros,
which leaves them unchanged, because only the other side is measured.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import sys
import time
from base64 import b64encode
from urllib.parse import urlsplit


class WebSocket:
    """A minimal WebSocket: text messages in single frames."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 80), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        key = b64encode(bytes(16)).decode()
        path = parts.path + ("?" + parts.query if parts.query else "")
        head = f"GET {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        self._socket.sendall(head.encode())
        self._received = bytearray()
        while (end := self._received.find(b"\r\n\r\n")) < 0:
            self._take()
        status = bytes(self._received).split(b" ", 2)[1]
        if status != b"101":
            raise ConnectionError(f"{url}: {bytes(self._received)[:500]!r}")
        del self._received[: end + 4]

    def fileno(self) -> int:
        return self._socket.fileno()

    def _take(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._received += data

    def send(self, text: bytes) -> None:
        size = len(text)
        length = bytes([0x80 | size]) if size < 126 else struct.pack(">BH", 0x80 | 126, size)
        self._socket.sendall(b"\x81" + length + bytes(4) + text)

    def messages(self) -> list[bytes]:
        """Waits for bytes; returns the complete messages."""
        self._take()
        found, at, data = [], 0, self._received
        while len(data) - at >= 4:
            size, start = data[at + 1] & 0x7F, at + 2
            if size == 126:
                size, start = int.from_bytes(data[start : start + 2], "big"), start + 2
            if len(data) < start + size:
                break
            if data[at] & 0x0F == 1:
                found.append(bytes(data[start : start + size]))
            at = start + size
        del data[:at]
        return found

    def close(self) -> None:
        self._socket.close()


def quantile(of: list[float], share: float) -> float:
    """Returns a quantile in milliseconds."""
    return round(1000 * sorted(of)[int(share * (len(of) - 1))], 2)


def run(url: str, rate: int, seconds: float, size: int) -> dict[str, float]:
    topic = "persistent/public/default/over-websockets"
    consumer = WebSocket(f"{url}/ws/v2/consumer/{topic}/load")
    producer = WebSocket(f"{url}/ws/v2/producer/{topic}")
    message = json.dumps({"payload": b64encode(bytes(size)).decode()}).encode()
    due: list[float] = []
    took: list[float] = []
    received = 0
    began = time.monotonic()
    total = int(rate * seconds)
    while len(took) < total or received < total:
        now = time.monotonic()
        while len(due) < total and (moment := began + len(due) / rate) <= now:
            producer.send(message)
            due.append(moment)
        wait = max(0.0, began + len(due) / rate - time.monotonic()) if len(due) < total else 10.0
        ready, _, _ = select.select((producer, consumer), (), (), wait)
        if producer in ready:
            answers, now = producer.messages(), time.monotonic()
            for answer in answers:
                if b'"ok"' not in answer:
                    raise ConnectionError(f"not published: {answer!r}")
                took.append(now - due[len(took)])
        if consumer in ready:
            for text in consumer.messages():
                identity = json.loads(text)["messageId"]
                consumer.send(b'{"messageId":"' + identity.encode() + b'"}')
                received += 1
    consumer.close()
    producer.close()
    return {
        "messages": total,
        "a second": round(total / (time.monotonic() - began)),
        "p50 ms": quantile(took, 0.5),
        "p99 ms": quantile(took, 0.99),
    }


if __name__ == "__main__":
    address, *numbers = sys.argv[1:]
    rate, seconds, size = map(int, numbers)
    sys.stdout.write(json.dumps(run(address, rate, seconds, size)))
