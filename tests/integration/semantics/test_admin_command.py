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


def test_it_prints_what_apache_pulsars_does(start_server: Any, capsys: pytest.CaptureFixture[str]) -> None:
    server: Server = start_server()
    wrong = []
    for row in ANSWERS.read_text().splitlines():
        line, code, expected = json.loads(row)
        if line in OTHERWISE:
            code = 1
        wanted = server.url if expected == "SERVICE_URL" else expected
        got_code = main(["--admin-url", server.http_url, *shlex.split(line)])
        out, err = capsys.readouterr()
        if got_code != code or (code == 0 and comparable(value_of(out.strip())) != comparable(wanted)):
            wrong.append((line, code, wanted, got_code, out, err))
    assert not wrong
