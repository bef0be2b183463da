"""Every command of Pulsar's cookbook "Message retention and expiry", in its order, as it is printed there."""

from __future__ import annotations

import io
import shlex
from typing import Any

import pytest
from server import Server

from magnetar.cli.pulsar_admin import main

COMMANDS = r"""
pulsar-admin namespaces set-retention my-tenant/my-ns \
--size 10G \
--time 3h

pulsar-admin namespaces set-retention my-tenant/my-ns \
--size 1T \
--time -1

pulsar-admin namespaces set-retention my-tenant/my-ns \
--size -1 \
--time 3h

pulsar-admin namespaces set-retention my-tenant/my-ns \
--size -1 \
--time -1

pulsar-admin namespaces set-retention my-tenant/my-ns \
--size 0 \
--time 0

pulsar-admin namespaces get-retention my-tenant/my-ns

pulsar-admin namespaces set-backlog-quota my-tenant/my-ns \
--limit 2G \
--policy producer_request_hold

pulsar-admin namespaces set-backlog-quota my-tenant/my-ns/my-topic \
--limitTime 3600 \
--policy producer_request_hold \
--type message_age

pulsar-admin namespaces get-backlog-quotas my-tenant/my-ns

pulsar-admin namespaces remove-backlog-quota my-tenant/my-ns

pulsar-admin namespaces clear-backlog my-tenant/my-ns

pulsar-admin namespaces set-message-ttl my-tenant/my-ns \
--messageTTL 120 # TTL of 2 minutes

pulsar-admin namespaces get-message-ttl my-tenant/my-ns

pulsar-admin namespaces remove-message-ttl my-tenant/my-ns
"""
ANSWERS = {
    "get-retention": ['"retentionTimeInMinutes" : 0', '"retentionSizeInMB" : 0'],
    "get-backlog-quotas": ["destination_storage", "limit=2147483648", "policy=producer_request_hold"],
    "get-message-ttl": ["120"],
}


def test_each_works_as_printed(
    start_server: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server: Server = start_server()
    assert server.ask("PUT", "/admin/v2/tenants/my-tenant", '{"allowedClusters":["standalone"]}')[0] == 204
    assert server.ask("PUT", "/admin/v2/namespaces/my-tenant/my-ns", "{}")[0] == 204
    printed = [command.replace("\\\n", "") for command in COMMANDS.strip().split("\n\n")]
    assert len(printed) == 14
    for command in printed:
        program, *words = shlex.split(command, comments=True)
        assert program == "pulsar-admin"
        # The one that asks before it clears anything.
        monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
        capsys.readouterr()
        code = main(["--admin-url", server.http_url, *words])
        out, err = capsys.readouterr()
        assert code == 0, (command, out, err)
        for text in ANSWERS.get(words[1], []):
            assert text in out, command


def test_clusters_in_names(start_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Standalone has ``global``; the other clusters in names are those that the tenant may use."""
    server: Server = start_server()

    def run(text: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["--admin-url", server.http_url, *text.split()])
        out, err = capsys.readouterr()
        return code, out + err

    assert run("clusters get global")[0] == 0
    assert run("clusters list") == (0, "standalone\n")
    assert run("tenants create property --allowed-clusters standalone")[0] == 0
    code, text = run("namespaces create property/us-west/n")
    assert code == 1
    assert "Cluster [us-west] is not in the list of allowed clusters" in text
    assert run("clusters create us-west --url http://127.0.0.1:1")[0] == 0
    assert run("namespaces create property/us-west/n")[0] == 1
    assert run("tenants update property --allowed-clusters standalone,us-west")[0] == 0
    assert run("namespaces create property/us-west/n")[0] == 0
    assert run("namespaces create property/global/n")[0] == 0
