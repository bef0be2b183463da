"""Property files that are none, and settings that cannot be: an error by name, never a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from fuzz_wire import EDGES, TEXTS, mutated

from magnetar.config.settings import ConfigurationError, load
from magnetar.config.table import settings_table

_VALUES = [
    *TEXTS,
    *map(str, EDGES),
    "-1",
    "true",
    "false",
    "yes",
    "1.5",
    "1e400",
    "nan",
    "0x10",
    "1_000",
    "٣",
]
_VALUES += ["a,b,,c", "\\u0000", "\\ud800", "\\uXYZ", "\\", "=", " : ", "persistent://public/default/x"]


def config(random: Random) -> bytes:
    """A file of settings, known and unknown, with values of all kinds; perhaps damaged."""
    keys = list(settings_table())
    lines = []
    for _ in range(random.choice((1, 3, 20))):
        key = random.choice(keys) if random.random() < 0.9 else random.choice(TEXTS)
        lines.append(f"{key}{random.choice(('=', ':', ' ', ' = '))}{random.choice(_VALUES)}")
    data = random.choice(("\n", "\r\n", "\r")).join(lines).encode("utf-8", "surrogatepass")
    return mutated(random, data) if random.random() < 0.3 else data


@pytest.mark.parametrize("seed", range(10))
def test_property_files_load_or_are_refused_by_name(tmp_path: Path, seed: int) -> None:
    random = Random(seed)
    path = tmp_path / "broker.conf"
    for number in range(300):
        path.write_bytes(config(random))
        try:
            loaded = load(path, frozenset(), {})
        except ConfigurationError as error:
            problems = error.problems
        else:
            json.dumps(dict(loaded.texts), ensure_ascii=False).encode()
            continue
        assert problems, number
        assert all(str(path) in problem for problem in problems), problems


def start(folder: Path, config: str) -> subprocess.CompletedProcess[str]:
    path = folder / "standalone.conf"
    path.write_text(config)
    command = [sys.executable, "-m", "magnetar", "standalone", "--config", str(path)]
    command += ["--data-dir", str(folder / "data"), "--http-port", "0", "--binary-port", "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("clusterName", "a/b"),
        ("clusterName", "\\u0000"),
        ("clusterName", "\\ud800"),
        ("bindAddress", "x" * 300),
        ("bindAddress", "\\u0000"),
        ("bindAddress", "\\ud800"),
        ("bindAddress", "no.such.host.invalid"),
        ("advertisedAddress", "\\ud800"),
        ("advertisedAddress", "a b"),
        ("advertisedAddress", "x\\ny"),
    ],
)
def test_names_and_addresses_that_cannot_be_do_not_start(tmp_path: Path, key: str, value: str) -> None:
    ended = start(tmp_path, f"{key}={value}\n")
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr, ended.stderr[-2000:]
    assert ended.stderr.startswith("magnetar: "), ended.stderr
    assert len(ended.stderr.splitlines()) == 1, ended.stderr
    assert "is serving" not in ended.stdout


def damaged(folder: Path, name: str, data: bytes) -> None:
    path = folder / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("ledgers/VERSION", b"garbage"),
        ("ledgers/VERSION", b"[" * 100_000),
        ("ledgers/VERSION", b'{"format": 1e999, "writer": "x", "store": ""}'),
        ("ledgers/VERSION", b'{"format": 99, "writer": "magnetar 9", "store": "00"}'),
        ("ledgers/checkpoint", b"garbage"),
        ("metadata/metadata.sqlite", b"garbage" * 1000),
        ("metadata/metadata.sqlite", b"SQLite format 3\x00" + bytes(4000)),
        ("ledgers", b"a file where a directory should be"),
        ("metadata", b"a file where a directory should be"),
    ],
)
def test_a_damaged_data_directory_does_not_start(tmp_path: Path, name: str, data: bytes) -> None:
    damaged(tmp_path, name, data)
    ended = start(tmp_path, "")
    assert ended.returncode == 1, ended
    assert "Traceback" not in ended.stderr, ended.stderr[-2000:]
    said = [line for line in ended.stderr.splitlines() if line.startswith("magnetar: not started")]
    assert len(said) == 1, ended.stderr
    assert name in said[0] or "format 99" in said[0] or "irectory" in said[0], said
    assert "is serving" not in ended.stdout


def test_two_escapes_are_one_character(tmp_path: Path) -> None:
    """They stayed two halves that nothing could write: the settings could not be asked for."""
    path = tmp_path / "broker.conf"
    path.write_text("metadataStoreConfigPath=\\ud83d\\ude00\n")
    assert load(path).texts["metadataStoreConfigPath"] == "😀"
