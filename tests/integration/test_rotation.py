"""Load balancers are told whether a broker is in rotation, and need not prove who they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from server import Server

SECURED = {
    "authenticationEnabled": "true",
    "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": "data:;base64,a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=",
}


def test_a_file_takes_a_broker_into_rotation_and_out_of_it(
    start_server: Callable[..., Server], tmp_path: Path
) -> None:
    marker = tmp_path / "status"
    server = start_server(statusFilePath=str(marker), **SECURED)
    assert server.ask("GET", "/admin/v2/clusters")[0] == 401
    assert server.ask("GET", "/status.html") == (404, b'{"reason":"This broker is not in rotation"}')
    marker.touch()
    assert server.ask("GET", "/status.html") == (200, b"OK")
    marker.unlink()
    assert server.ask("GET", "/status.html")[0] == 404


def test_without_a_file_no_broker_is(start_server: Callable[..., Server]) -> None:
    assert start_server().ask("GET", "/status.html")[0] == 404
