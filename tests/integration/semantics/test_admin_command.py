"""Magnetar's ``pulsar-admin`` prints what Apache Pulsar's own does, for the same command lines."""

from __future__ import annotations

import json
import shlex
import time
from typing import Any

import pytest
from admin_lines import ANSWERS, DIFFERENT, LINES, fits, lines_of
from printed import comparable, value_of
from server import Server

from magnetar import left_out
from magnetar.cli.admin.arguments import commands
from magnetar.cli.pulsar_admin import main

OTHERWISE = ("topics delete tt/n/p", "topics delete tt/n/none")
"""Pulsar's says that these failed and ends with 0."""
AS_JSON: dict[str, list[object]] = {
    "ns-isolation-policy list standalone": [
        {
            "mine": {
                "namespaces": ["nobody/.*"],
                "primary": ["other.*"],
                "secondary": ["third.*"],
                "auto_failover_policy": {
                    "policy_type": "min_available",
                    "parameters": {"min_limit": "1", "usage_threshold": "80"},
                },
            }
        }
    ],
    "clusters get-failure-domain standalone --domain-name d1": [{"brokers": ["a:1", "b:1"]}],
    "clusters list-failure-domains standalone": [{}, {"d1": {"brokers": ["a:1", "b:1"]}}],
}
"""What is printed here each time. Pulsar's prints objects as Java writes them, and sets as they come."""


def test_it_prints_what_apache_pulsars_does(start_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server: Server = start_server()
    wrong = []
    as_json = {line: list(answers) for line, answers in AS_JSON.items()}
    for row in ANSWERS.read_text().splitlines():
        line, code, expected = json.loads(row)
        if line in OTHERWISE:
            code = 1
        if code == 0 and as_json.get(line):
            expected = as_json[line].pop(0)
        wanted = server.url if expected == "SERVICE_URL" else expected
        got_code = main(["--admin-url", server.http_url, *shlex.split(line)])
        out, err = capsys.readouterr()
        if got_code != code or (code == 0 and comparable(value_of(out.strip())) != comparable(wanted)):
            wrong.append((line, code, wanted, got_code, out, err))
    assert not wrong


_LAST = "brokers shutdown"
_ELSEWHERE = {"proxy-stats connections", "proxy-stats topics"}
"""Proxies are asked in tests/integration/test_proxy.py."""
_NOT_RECORDED = {"functions localrun", "sources localrun", "sinks localrun"}
"""Apache Pulsar's would run for long."""


def test_every_command_is_in_a_line() -> None:
    asked = {" ".join(line.split(" ")[:2]) for line, _, _ in lines_of(ANSWERS, LINES)}
    known = commands().keys() | left_out.commands().keys()
    assert known - asked - _ELSEWHERE == _NOT_RECORDED | {_LAST}


def test_all_other_commands_print_what_apache_pulsars_do(
    start_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    server: Server = start_server()
    wrong, different = [], set[str]()
    for line, code, expected in lines_of(LINES):
        got_code = main(["--admin-url", server.http_url, *shlex.split(line)])
        out, err = capsys.readouterr()
        printed = value_of(out.strip())
        if got_code == code and (code != 0 or fits(printed, expected)):
            continue
        if line in DIFFERENT and DIFFERENT[line][0] == got_code:
            different.add(line)
            continue
        wrong.append((line, code, expected, got_code, out, err))
    assert not wrong
    assert different == DIFFERENT.keys()
    assert main(["--admin-url", server.http_url, *_LAST.split(" ")]) == 0
    while server.runs:
        time.sleep(0.05)


@pytest.mark.parametrize("line", sorted({*left_out.commands(), "source list", "sinks getstatus"}))
def test_what_is_left_out_is_refused_alike_whatever_follows(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*line.split(" "), "--tenant", "lt", "--name", "f", "--help"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pulsar-admin: ")
    assert any(err.endswith(f": {each.reason}\n") for each in left_out.subjects().values())
