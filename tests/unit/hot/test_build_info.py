"""What `magnetar --version` says of the code that runs."""

from __future__ import annotations

import subprocess
from contextlib import nullcontext
from pathlib import Path

import pytest

from magnetar import __version__, build_info, hot
from magnetar.cli import magnetar
from magnetar.hot.forms import Form, HotStatus


def _of_package(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package.mkdir(parents=True)
    monkeypatch.setattr(build_info, "_PACKAGE", package)


def test_a_released_package_knows_its_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _of_package(tmp_path / "site-packages" / "magnetar", monkeypatch)
    assert build_info.commit() == ""
    (tmp_path / "site-packages" / "magnetar" / "commit.txt").write_text("0123456789ab\n")
    assert build_info.commit() == "0123456789ab"


def test_a_checkout_asks_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _of_package(tmp_path / "src" / "magnetar", monkeypatch)
    git = ("git", "-c", "user.name=n", "-c", "user.email=e", "-C", str(tmp_path))
    subprocess.run([*git, "init", "--quiet"], check=True)
    assert build_info.commit() == "", "nothing is committed yet"
    subprocess.run([*git, "commit", "--quiet", "--allow-empty", "-m", "First"], check=True)
    asked = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    assert asked.stdout.startswith(build_info.commit())
    assert len(build_info.commit()) >= 12


@pytest.mark.parametrize("arguments", [["--version"], ["version"]])
@pytest.mark.parametrize(
    ("forms", "said"),
    [((Form.COMPILED, Form.COMPILED), "compiled"), ((Form.COMPILED, Form.STALE), "interpreted")],
)
def test_the_command_prints_one_line(
    arguments: list[str],
    forms: tuple[Form, ...],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(build_info, "commit", lambda: "0123456789ab")
    found = HotStatus({str(number): form for number, form in enumerate(forms)})
    monkeypatch.setattr(hot, "status", lambda _modules: found)
    with pytest.raises(SystemExit) if arguments[0].startswith("--") else nullcontext():
        magnetar.main(arguments)
    printed = capsys.readouterr()
    assert printed.out == f"magnetar {__version__} (commit 0123456789ab, {said})\n"
    assert printed.err == ""
