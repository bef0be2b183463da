"""Costly admin requests and scrapes by many threads at once."""

from __future__ import annotations

import threading
import time
from itertools import cycle

from target import Target

_SECONDS = 8.0
_THREADS = 14
_REQUESTS = (
    ("PUT", "/admin/v2/namespaces/a/ns/unload"),
    ("PUT", "/admin/v2/persistent/a/ns/t/unload"),
    ("POST", "/admin/v2/namespaces/a/ns/clearBacklog"),
    ("GET", "/admin/v2/persistent/a/ns/t/stats"),
    ("GET", "/metrics/"),
)
_STATUSES = (200, 204, 401, 404, 409, 429, 503)
"""Of what is done, may not be done, is being unloaded, or is too much."""


def attack(target: Target) -> None:
    ends = time.monotonic() + _SECONDS
    found: set[int] = set()

    def ask(first: int) -> None:
        requests = cycle((*_REQUESTS[first:], *_REQUESTS[:first]))
        while time.monotonic() < ends:
            method, path = next(requests)
            status, _answer = target.ask(method, path, "a-admin")
            found.add(status)

    threads = [threading.Thread(target=ask, args=(number % len(_REQUESTS),)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found <= set(_STATUSES), found
