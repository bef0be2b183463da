"""Java's client with `AutoClusterFailover` (PIP-121) between two clusters that replicate to each other."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from client_programs import java_command
from replicated_sites import Site, connect, make_namespace, received
from server import Server
from test_clients import run_program

__all__ = ["java_command"]


def test_a_client_goes_to_the_other_cluster_and_comes_back(
    start_server: Callable[..., Server], java_command: list[str]
) -> None:
    east = Site("east", start_server(clusterName="east"))
    west = Site("west", start_server(clusterName="west"))
    connect(east, west)
    topic = f"{make_namespace('failover', east, west)}/t"
    audits = [site.subscribe(topic, "audit") for site in (east, west)]
    turns = count()

    def fall_or_return() -> None:
        if next(turns) == 0:
            east.server.kill()
        else:
            east.server.start()

    command = [
        *java_command[:-1],
        "interop.ClusterFailover",
        *("--secondary", west.server.url),
        *("--topic", f"persistent://{topic}"),
    ]
    checks, text = run_program(command, east.server, "failover", "java", fall_or_return)
    assert [check["check"] for check in checks] == ["primary", "secondary", "back"], text
    wanted = {f"{name} {number}" for name in ("first", "second", "third") for number in range(3)}
    for audit in audits:
        # Nothing is deduplicated: messages may be there twice.
        missing = set(wanted)
        while missing:
            [message] = received(audit, 1)
            missing.discard(message.data().decode())
    for site in (east, west):
        site.client.close()
