"""``magnetar doctor``: what is found, what to do about it, and nothing left of it."""

from __future__ import annotations

import json
import re
import resource
import shlex
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.cli.magnetar import main
from magnetar.io.real.disk import RealDisk
from magnetar.server import diagnosis
from magnetar.server.diagnosis import FindingState

Found = dict[str, dict[str, str]]
FREE = "brokerServicePort=0\nwebServicePort=0\n"


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, Found]]:
    """Findings by subject."""

    def run(settings: str = FREE, name: str = "standalone.conf") -> tuple[int, Found]:
        config = tmp_path / name
        config.write_text(settings)
        where = str(tmp_path / "data")
        code = main(["doctor", "-o", "json", "--config", str(config), "--data-dir", where])
        told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return code, {each["subject"]: each for each in told}

    return run


Doctor = Callable[..., tuple[int, Found]]


def test_all_is_looked_at_and_nothing_is_left(doctor: Doctor, tmp_path: Path) -> None:
    code, found = doctor()
    assert code == 0
    assert list(found) == [
        "versions",
        "hot modules",
        "open files",
        "clock",
        "settings",
        "port 0",
        "disk space",
        "sync speed",
    ]
    assert "commits of 4 KiB" in found["sync speed"]["found"]
    assert [path.name for path in tmp_path.iterdir()] == ["standalone.conf"]


def test_a_port_that_is_taken(doctor: Doctor) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        code, found = doctor(f"brokerServicePort={number}\nwebServicePort=0\n")
    line = found[f"port {number}"]
    assert code == 1
    assert line["state"] == "fail"
    assert "Address already in use, process" in line["found"]
    assert line["advice"] == "end that process, or use --binary-port 0 for a free port"


def test_an_address_that_is_not_here(doctor: Doctor) -> None:
    code, found = doctor(FREE + "bindAddress=192.0.2.1\n")
    assert code == 1
    assert "Cannot assign requested address" in found["port 0"]["found"]


@pytest.mark.parametrize(("share", "state"), [(0.0001, "fail"), (0.07, "warn"), (0.5, "ok")])
def test_how_full_a_disk_is(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch, share: float, state: str
) -> None:
    total = 1 << 40
    monkeypatch.setattr(RealDisk, "total_bytes", lambda _disk: total)
    monkeypatch.setattr(RealDisk, "free_bytes", lambda _disk: int(total * share))
    code, found = doctor()
    assert code == (1 if state == "fail" else 0)
    assert found["disk space"]["state"] == state
    assert bool(found["disk space"]["advice"]) == (state != "ok")


def test_settings_that_stop_a_start(doctor: Doctor, tmp_path: Path) -> None:
    code, found = doctor("maxMessageSize=large\n")
    assert code == 1
    assert "must be a whole number" in found["settings"]["found"]
    assert found["settings"]["advice"] == f"magnetar check {tmp_path}/standalone.conf"
    assert "disk space" not in found


def test_a_broker_of_a_cluster_has_no_disk(doctor: Doctor) -> None:
    code, found = doctor(FREE + "metadataStoreUrl=zk:localhost:2181\nclusterName=c\n", "broker.conf")
    assert code == 0
    assert list(found)[-2:] == ["settings", "port 0"]


def test_slow_syncs_few_files_and_interpreted_modules(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(diagnosis, "SLOW_SYNC_SECONDS", 0.0)
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    monkeypatch.setattr(diagnosis, "FEW_FILES", resource.getrlimit(resource.RLIMIT_NOFILE)[1] + 1)
    code, found = doctor()
    assert code == 0
    for subject in ("sync speed", "hot modules", "open files"):
        assert found[subject]["state"] == FindingState.WARN.value
        assert found[subject]["advice"]


def test_commands_of_the_page(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "standalone.conf").write_text(FREE)
    page = Path(__file__).parents[3] / "docs" / "command-lines.md"
    commands = re.findall(r"^    magnetar (doctor.*)$", page.read_text("utf-8"), re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        # The usual ports may be somebody's: that is told, too.
        assert main(shlex.split(command)) in (0, 1)
        assert "sync speed" in capsys.readouterr().out
