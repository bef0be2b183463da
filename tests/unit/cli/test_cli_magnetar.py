from __future__ import annotations

from pathlib import Path

import pytest

from magnetar import __version__
from magnetar.cli import magnetar
from magnetar.server import standalone
from magnetar.server.broker_process import ProcessOptions


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert magnetar.main(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"magnetar {__version__} (commit ")


def test_without_a_command_the_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert magnetar.main([]) == 2
    assert "standalone" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["standalone", "--http-port", "x"], "'x' is not a port; give a whole number from 0 to 65535"),
        (["standalone", "--binary-port", "65536"], "'65536' is not a port"),
        (["standalone", "--log-format", "xml"], "invalid choice: 'xml'"),
        (["standalone", "--data-dir", ""], "the name of the directory is empty"),
        (["standalone", "--nope"], "unknown option --nope"),
    ],
)
def test_mistakes_are_told_and_end_with_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        magnetar.main(arguments)
    assert ended.value.code == 2
    assert told in capsys.readouterr().err


def test_options_reach_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[ProcessOptions] = []

    def run_standalone(options: ProcessOptions) -> int:
        seen.append(options)
        return 7

    monkeypatch.setattr(standalone, "run_standalone", run_standalone)
    arguments = (
        "standalone --config c.conf --data-dir d --binary-port 1 --http-port 0 --bind-address 0.0.0.0 "
        "--advertised-address h --accept-unhonoured a --accept-unhonoured b --log-format json "
        "--log-level debug"
    )
    assert magnetar.main(arguments.split()) == 7
    assert magnetar.main(["standalone"]) == 7
    assert seen[0] == ProcessOptions(
        data_dir=Path("d"),
        config=Path("c.conf"),
        overrides={
            "brokerServicePort": "1",
            "webServicePort": "0",
            "bindAddress": "0.0.0.0",
            "advertisedAddress": "h",
        },
        accept_unhonoured=frozenset({"a", "b"}),
        log_format="json",
        log_level="debug",
    )
    assert seen[1] == ProcessOptions(data_dir=Path("data"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stndalone"], "invalid choice: 'stndalone'; did you mean standalone?"),
        (
            ["standalone", "--http-prot", "3"],
            "magnetar standalone: error: unknown option --http-prot; did you mean --http-port?",
        ),
        (["tail", "t", "u"], "magnetar tail: error: unexpected argument u"),
    ],
)
def test_mistakes_are_answered_with_corrections(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        magnetar.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
