"""``magnetar check``: the same words as a start, and an exit code by which scripts can go."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.cli.magnetar import main

Checked = tuple[int, str]
Check = Callable[..., Checked]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    def run(path: Path, *options: str) -> Checked:
        code = main(["check", str(path), *options])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, name: str = "standalone.conf") -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return write


MIXED = """brokerServicePort=6650
brokerShutdownTimeoutMs=1000
numIOThreads=8
loadManagerClassName=org.apache.pulsar.broker.loadbalance.NoopLoadManager
webServicePort=8080
anythingElse=1
tokenSecretKey=data:;base64,c2VjcmV0
"""


def rows(said: str) -> dict[str, list[str]]:
    """Of the table: fate and value, by name."""
    table = said.partition("\n\n")[0].splitlines()[1:]
    return {name: rest for name, *rest in (line.split(None, 2) for line in table)}


def test_every_setting_has_its_row(check: Check, written: Callable[..., Path]) -> None:
    code, said = check(written(MIXED))

    assert code == 0
    found = {name: fate for name, (fate, *_value) in rows(said).items()}
    assert found == {
        "anythingElse": "unknown",
        "brokerServicePort": "honoured",
        "brokerShutdownTimeoutMs": "honoured",
        "loadManagerClassName": "not",
        "numIOThreads": "ignored",
        "tokenSecretKey": "honoured",
        "webServicePort": "honoured",
    }
    assert "c2VjcmV0" not in said
    assert said.splitlines()[1].startswith("loadManagerClassName")
    assert said.endswith(
        "magnetar standalone would start with it: 4 honoured, 1 ignored, 1 unknown, 1 not honoured\n"
    )


def test_tiered_storage_that_a_start_refuses(check: Check, written: Callable[..., Path]) -> None:
    code, said = check(written("managedLedgerOffloadDriver=azureblob\n"))
    assert code == 1
    assert "Pulsar's driver azureblob is not supported" in said
    code, said = check(written("managedLedgerOffloadDriver=filesystem\nfileSystemURI=file:///tiered\n"))
    assert code == 0


def test_as_json(check: Check, written: Callable[..., Path]) -> None:
    code, said = check(written(MIXED), "-o", "json")
    found: dict[str, Any] = json.loads(said)
    assert code == 0
    assert found["as"] == "standalone"
    assert found["starts"] is True
    assert found["problems"] == []
    first = found["settings"][0]
    assert first == {"name": "brokerServicePort", "value": "6650", "fate": "honoured", "said": ""}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("managedLedgerDefaultWriteQuorum=2\nwebServicePort=0\n", "is not honoured"),
        ("maxMessageSize=large\nwebSocketServiceEnabled=perhaps\n", "must be a whole number"),
        ("clusterName=a b\nwebServicePort=0\n", "clusterName"),
        ("entryFilterNames=nowhere:Filter\nwebServicePort=0\n", "cannot be loaded"),
        ("bindAddresses=outside:pulsar://127.0.0.1:0\nwebServicePort=0\n", "the listener 'outside'"),
        ("webServicePort=0\nclusterName=\\u12\n", "standalone.conf:2:"),
    ],
)
def test_a_start_says_the_same(
    check: Check, written: Callable[..., Path], tmp_path: Path, text: str, problem: str
) -> None:
    path = written(text)
    command = [sys.executable, "-m", "magnetar", "standalone", "--config", str(path)]
    started = subprocess.run(
        [*command, "--data-dir", str(tmp_path / "data"), "--binary-port", "0", "--http-port", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    code, said = check(path, "-o", "text")

    assert code == started.returncode == 1
    assert problem in said
    refused = [line for line in started.stderr.splitlines() if line.startswith("magnetar: ")]
    assert refused
    prefix = f"not started with data in {tmp_path / 'data'}: "
    told = [line.removeprefix("magnetar: ") for line in said.splitlines()]
    for line in refused:
        assert line.removeprefix("magnetar: ").removeprefix(prefix) in told


def test_what_is_accepted_is_not_refused(check: Check, written: Callable[..., Path]) -> None:
    path = written("managedLedgerDefaultWriteQuorum=2\n")
    assert check(path)[0] == 1
    code, said = check(path, "--accept-unhonoured", "managedLedgerDefaultWriteQuorum")
    assert code == 0
    assert rows(said)["managedLedgerDefaultWriteQuorum"][0] == "not"


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("proxy.conf", "", "proxy"),
        ("mine.conf", "servicePort=6650\n", "proxy"),
        ("mine.conf", "metadataStoreUrl=zk:localhost:2181\nbrokerServicePort=1\n", "broker"),
        ("mine.conf", "metadataStoreUrl=\nbrokerServicePort=1\n", "standalone"),
        ("standalone.conf", "metadataStoreUrl=zk:localhost:2181\n", "standalone"),
    ],
)
def test_what_a_file_is_for(
    check: Check, written: Callable[..., Path], name: str, text: str, kind: str
) -> None:
    path = written(text, name)
    assert f"magnetar {kind} would" in check(path)[1]
    assert "magnetar broker would" in check(path, "--as", "broker")[1]


def test_commands_of_the_page(
    check: Check, written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[3] / "docs" / "command-lines.md"
    commands = re.findall(r"^    magnetar check (.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        *options, name = shlex.split(command)
        written("maxMessageSize=1000000\n", name)
        code, said = check(Path(name), *options)
        assert code == 0
        assert said


def test_files_that_cannot_be_checked(check: Check, tmp_path: Path, written: Callable[..., Path]) -> None:
    code, said = check(tmp_path / "nowhere.conf")
    assert (code, said) == (
        1,
        f"magnetar: {tmp_path}/nowhere.conf cannot be read: No such file or directory\n",
    )


def test_a_file_for_websockets_is_known_by_its_name(check: Check, written: Callable[..., Path]) -> None:
    text = "brokerServiceUrl=pulsar://a\ncryptoKeyReaderFactoryClassName=x.Y\n"
    code, said = check(written(text, "websocket.conf"))
    assert code == 1
    assert "a class of Java" in said
    assert check(written("brokerServiceUrl=pulsar://a\n", "websocket.conf"))[0] == 0
