"""Small messages that claim, and have, a lot of bytes uncompressed are looked at by many at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from target import OWN, Target, path_of

TOPIC = f"{OWN}-peeked"
MIB = 1 << 20
_SIZES = (128 * MIB, 60 * MIB, 16 * MIB)
_AT_ONCE, _TIMES = 15, 40


def attack(target: Target) -> None:
    target.ask("PUT", f"/admin/v2/{path_of(TOPIC)}", "a-admin")
    target.ask("PUT", f"/admin/v2/{path_of(TOPIC)}/subscription/s", "a-user")
    target.store_bombs(TOPIC, *_SIZES)

    def peek(number: int) -> int:
        position = number % len(_SIZES) + 1
        path = f"/admin/v2/{path_of(TOPIC)}/subscription/s/position/{position}"
        status, answer = target.ask("GET", path, "a-user")
        assert status in (200, 413, 503), (status, answer[:300])
        assert status != 200 or len(answer) == _SIZES[position - 1]
        return status

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        statuses = list(pool.map(peek, range(_TIMES)))
    assert {200, 413} <= set(statuses)
