"""Magnetar's ``pulsar-admin`` prints what Apache Pulsar's own does, for the same command lines."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from printed import comparable, value_of
from server import Server

from magnetar.cli.pulsar_admin import main

ANSWERS = Path(__file__).parent / "admin_answers.jsonl"


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
