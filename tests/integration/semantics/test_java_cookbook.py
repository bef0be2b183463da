"""The commands of Pulsar's cookbook on retention and expiry, through Apache Pulsar's own ``pulsar-admin``.

It answers what Magnetar's does: one JVM runs all lines, then Magnetar's own command runs them again.
"""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from printed import comparable, value_of
from server import Server
from test_java_admin import java_admin, run_lines

from magnetar.cli.pulsar_admin import main

__all__ = ["java_admin"]

LINES = (
    ("namespaces get-retention my-tenant/my-ns", 0),
    ("namespaces set-retention my-tenant/my-ns --size 10G --time 3h", 0),
    ("namespaces get-retention my-tenant/my-ns", 0),
    ("namespaces set-retention my-tenant/my-ns --size 1T --time -1", 0),
    ("namespaces get-retention my-tenant/my-ns", 0),
    ("namespaces set-retention my-tenant/my-ns --size -1 --time 3h", 0),
    ("namespaces get-retention my-tenant/my-ns", 0),
    ("namespaces set-retention my-tenant/my-ns --size -1 --time -1", 0),
    ("namespaces get-retention my-tenant/my-ns", 0),
    ("namespaces set-retention my-tenant/my-ns --size 0 --time 0", 0),
    ("namespaces get-retention my-tenant/my-ns", 0),
    ("namespaces set-retention my-tenant/my-ns --size 500M --time 10m", 0),
    ("namespaces get-retention my-tenant/my-ns", 0),
    ("namespaces set-retention my-tenant/my-ns --size 0 --time 3h", 1),
    ("namespaces remove-retention my-tenant/my-ns", 0),
    ("namespaces set-backlog-quota my-tenant/my-ns --limit 2G --policy producer_request_hold", 0),
    ("namespaces get-backlog-quotas my-tenant/my-ns", 0),
    ("namespaces set-backlog-quota my-tenant/my-ns -lt 3600 -p producer_request_hold -t message_age", 0),
    ("namespaces get-backlog-quotas my-tenant/my-ns", 0),
    ("namespaces remove-backlog-quota my-tenant/my-ns", 0),
    ("namespaces remove-backlog-quota my-tenant/my-ns --type message_age", 0),
    ("namespaces get-backlog-quotas my-tenant/my-ns", 0),
    ("topicPolicies set-backlog-quota my-tenant/my-ns/t -lt 3600 -p producer_exception -t message_age", 0),
    ("topicPolicies get-backlog-quota my-tenant/my-ns/t", 0),
    ("topicPolicies remove-backlog-quota my-tenant/my-ns/t -t message_age", 0),
    ("namespaces set-message-ttl my-tenant/my-ns --messageTTL 120", 0),
    ("namespaces get-message-ttl my-tenant/my-ns", 0),
    ("topicPolicies get-message-ttl -ap my-tenant/my-ns/t", 0),
    ("namespaces remove-message-ttl my-tenant/my-ns", 0),
    ("namespaces get-message-ttl my-tenant/my-ns", 0),
    ("topics create-subscription -s s my-tenant/my-ns/t", 0),
    ("topics expire-messages -s s -t 10 my-tenant/my-ns/t", 1),
    ("topics expire-messages -s nobody -t 10 my-tenant/my-ns/t", 1),
    ("topics expire-messages-all-subscriptions -t 10 my-tenant/my-ns/t", 1),
    ("topics analyze-backlog -s s my-tenant/my-ns/t", 0),
    ("topics clear-backlog -s s my-tenant/my-ns/t", 0),
    ("topics skip -s s -n 3 my-tenant/my-ns/t", 0),
    ("topics truncate my-tenant/my-ns/t", 0),
    ("namespaces clear-backlog my-tenant/my-ns -force", 0),
    ("namespaces clear-backlog my-tenant/my-ns -force -s s", 0),
    ("brokers backlog-quota-check", 0),
)


def test_both_say_the_same(
    start_server: Any,
    java_admin: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    server: Server = start_server()
    for line in (
        "tenants create my-tenant -c standalone",
        "namespaces create my-tenant/my-ns",
        "topics create my-tenant/my-ns/t",
    ):
        assert main(["--admin-url", server.http_url, *shlex.split(line)]) == 0
    theirs = run_lines(java_admin, server, [line for line, _code in LINES])
    assert (
        main(["--admin-url", server.http_url, "topics", "unsubscribe", "-s", "s", "my-tenant/my-ns/t"]) == 0
    )
    wrong = []
    for (line, code), (their_code, their_out, _err) in zip(LINES, theirs, strict=True):
        capsys.readouterr()
        own_code = main(["--admin-url", server.http_url, *shlex.split(line)])
        own = capsys.readouterr().out.strip()
        same = code != 0 or comparable(value_of(own)) == comparable(their_out)
        if not same or (code, code) != (their_code, own_code):
            wrong.append((line, code, their_code, their_out, own_code, own))
    assert not wrong
