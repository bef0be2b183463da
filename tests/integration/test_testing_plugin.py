"""The pytest plugin as users run it, in a pytest of its own: docs/testing.md, failures, what is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"
SECONDS = 120.0


class Session:
    """Tests of somebody else, in a folder of theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "temporary"
        self.temporary.mkdir()
        (folder / "pytest.ini").write_text("[pytest]\n")

    def write(self, text: str, name: str = "test_it.py") -> None:
        (self.folder / name).write_text(text)

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", *options]
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
            environment.pop(name, None)
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *options: str) -> tuple[int, str]:
        """Exit code and output; nothing may be left of it."""
        process = self.start(*options)
        said, _ = process.communicate(timeout=SECONDS)
        self.check_nothing_is_left()
        return process.returncode, said

    def check_nothing_is_left(self) -> None:
        """Waits for what ends by itself."""
        until = time.monotonic() + SECONDS
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.02)
        assert left == []

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.temporary.glob("magnetar-testing-*"))

    def processes(self) -> list[str]:
        """Command lines of those that were started within it."""
        mark = f"TMPDIR={self.temporary}".encode()
        found = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            try:
                if mark in environment.read_bytes().split(b"\0"):
                    found.append((environment.parent / "cmdline").read_bytes().decode())
            except OSError:
                # It has ended meanwhile, or is somebody else's.
                continue
        return found


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    made = Session(tmp_path)
    yield made
    made.check_nothing_is_left()


def test_examples_of_the_page_with_several_workers(session: Session) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    for number, block in enumerate(blocks):
        session.write(block, f"test_page_{number}.py")
    tests = sum(block.count("\ndef test_") for block in blocks)

    code, said = session.run("-n", "2", "-q")

    assert code == 0, said
    assert f"{tests} passed" in said
    assert session.folders == []


def test_what_goes_wrong_is_told(session: Session) -> None:
    session.write("""
import os
import signal
import pytest
from pathlib import Path


def test_that_fails(broker):
    broker.client().create_producer("orders")
    assert broker.admin_url == "elsewhere"


@pytest.mark.broker(settings={"managedLedgerDefaultWriteQuorum": 2})
def test_settings_that_are_refused(broker):
    raise AssertionError("it did start")


@pytest.mark.broker(setting={"a": 1})
def test_a_marker_with_a_slip(broker):
    raise AssertionError("it did start")


def test_a_broker_that_ends_by_itself(broker):
    os.kill(_listener(broker), signal.SIGKILL)


def _listener(broker):
    for each in Path("/proc").glob("[0-9]*"):
        try:
            files = [os.readlink(found) for found in (each / "fd").iterdir()]
        except OSError:
            continue
        if any(str(broker.folder / "broker.log") == found for found in files):
            return int(each.name)
""")
    code, said = session.run("-q")

    assert code == 1
    assert re.search(r"- log of pulsar://127\.0\.0\.1:\d+ -.*producer opened", said, re.DOTALL), said
    assert "BrokerNotStarted: the broker did not start: " in said
    assert "managedLedgerDefaultWriteQuorum" in said
    assert "the marker broker accepts config and settings as keyword arguments, not setting" in said
    assert "BrokerEnded: the broker ended with -9 although no test stopped it" in said
    assert session.folders == []


def test_without_a_test_that_wants_a_broker_nothing_is_started(session: Session) -> None:
    session.write("""
import sys

import pytest


@pytest.fixture
def broker():
    return "somebody else's"


def test_it(broker):
    assert broker == "somebody else's"
    assert not [name for name in sys.modules if name.startswith("magnetar.") and name not in LIGHT]


LIGHT = {"magnetar.hot", "magnetar.testing", "magnetar.testing.plugin"}
""")
    code, said = session.run("-q")
    assert code == 0, said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_tests_that_are_interrupted_leave_nothing_running(session: Session, number: signal.Signals) -> None:
    session.write("""
import time
from pathlib import Path


def test_it(broker_factory):
    brokers = broker_factory(), broker_factory()
    Path("ready").touch()
    time.sleep(600)
""")
    process = session.start("-q")
    until = time.monotonic() + SECONDS
    while not (session.folder / "ready").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert len(session.processes()) == 4
    process.send_signal(number)
    process.communicate(timeout=SECONDS)

    session.check_nothing_is_left()
    if number == signal.SIGINT:
        assert session.folders == []
