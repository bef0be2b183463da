"""A page of another host asks without a proof, by its own name or by the broker's."""

from __future__ import annotations

from target import FOREIGN, Target, path_of

_HOSTS = ("evil.example:8080", "localhost")
_PATHS = (
    f"/admin/v2/{path_of(FOREIGN)}/examinemessage?initialPosition=earliest&messagePosition=1",
    "/admin/v2/persistent/b/ns",
    "/admin/v2/proxy-stats/stats",
)


def attack(target: Target) -> None:
    for host in _HOSTS:
        for path in _PATHS:
            headers = {"Host": host, "Origin": f"http://{host}"}
            assert target.ask("GET", path, **headers)[0] in (401, 403), (host, path)
        # Whoever fails to prove who it is waits longer each time.
        changed = target.ask("DELETE", "/admin/v2/persistent/b/ns/t", **headers)[0]
        assert changed in (401, 403), (host, changed)
