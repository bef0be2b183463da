"""The exit codes of all commands: those that are declared, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from magnetar.cli import magnetar, pulsar_admin, pulsar_client, pulsar_perf
from magnetar.cli.other_commands import OTHERS
from magnetar.cli.serving import SERVERS
from magnetar.exit_codes import EXIT_CODES, FAILED, MISUSED, SUCCEEDED

_DOCS = Path(__file__).parents[3] / "docs" / "command-lines.md"
_MAIN: Mapping[str, Callable[[Sequence[str]], int]] = {
    "magnetar": magnetar.main,
    "pulsar-admin": pulsar_admin.main,
    "pulsar-client": pulsar_client.main,
    "pulsar-perf": pulsar_perf.main,
}


def _ends_with(command: str, *arguments: str) -> int:
    program, *words = command.split()
    try:
        return _MAIN[program]([*words, *arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else -1


def test_every_command_has_exit_codes() -> None:
    known = [f"magnetar {name}" for name in ("completion", *OTHERS, *SERVERS)]
    assert sorted(EXIT_CODES) == sorted([*_MAIN, *known])


@pytest.mark.parametrize("command", list(EXIT_CODES))
def test_a_command_ends_with_its_codes(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _ends_with(command, "--help") == SUCCEEDED
    invalid = MISUSED if MISUSED in EXIT_CODES[command] else FAILED
    assert _ends_with(command, "--no-such-option") == invalid
    assert capsys.readouterr()


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("magnetar check", ["/no/such/file"]),
        ("magnetar explain", ["t", "--admin-url", "http://localhost:1"]),
        ("magnetar tail", ["t", "--url", "no address"]),
        ("magnetar top", ["--once", "--admin-url", "http://localhost:1"]),
        ("magnetar translate-positions", ["--mapping", "/no/such/file", "t", "1:2"]),
        ("pulsar-admin", ["--admin-url", "http://localhost:1", "tenants", "list"]),
        ("pulsar-client", ["--url", "no address", "produce", "t", "-m", "x"]),
        ("pulsar-perf", ["produce", "-u", "no address", "t"]),
    ],
)
def test_a_failure_is_told_from_a_mistake(
    command: str, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert _ends_with(command, *arguments) == FAILED
    assert FAILED in EXIT_CODES[command]
    assert capsys.readouterr().err


def test_the_documentation_has_all_codes() -> None:
    section = _DOCS.read_text().partition("## Exit codes\n")[2].partition("\n## ")[0]
    found: dict[str, dict[int, str]] = {}
    commands: list[str] = []
    for named, code, meaning in re.findall(r"^\| (.*?) *\| (\d+) \| (.*) \|$", section, re.MULTILINE):
        commands = re.findall(r"`([^`]+)`", named) or commands
        for command in commands:
            found.setdefault(command, {})[int(code)] = meaning
    assert found == {command: dict(codes) for command, codes in EXIT_CODES.items()}
