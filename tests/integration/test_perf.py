"""``pulsar-perf`` against a real broker: figures that add up, nothing left behind, void runs named."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documented_steps import commands_of
from server import Server

PAGE = Path(__file__).parents[2] / "docs" / "pulsar-perf.md"
SECONDS = 120


@pytest.fixture(scope="module")
def broker(plain_broker: Server) -> Server:
    return plain_broker


def perf(broker: Server, command: str, topic: str, *flags: str) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "magnetar.cli.pulsar_perf", command, topic, "-u", broker.url]
    if command in ("produce", "run"):
        arguments += ["-au", broker.http_url]
    return subprocess.run([*arguments, *flags], capture_output=True, text=True, timeout=SECONDS, check=False)


def figures(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def topics(broker: Server) -> list[str]:
    status, body = broker.ask("GET", "/admin/v2/persistent/public/default")
    assert status == 200
    listed: list[str] = json.loads(body)
    return listed


SMALL = ("-s", "100", "-m", "3000", "--warmup-time", "0", "--json", "-")


@pytest.mark.parametrize("raw", [("--raw",), ()])
@pytest.mark.parametrize("batching", [("-db",), ("-bm", "50")])
@pytest.mark.parametrize(
    "shape",
    [
        (),
        ("-t", "3", "-n", "2", "-ns", "2", "-c", "2"),
        ("-st", "Shared", "--num-consumers", "3", "--ack", "individual", "--acks-delay-millis", "0"),
        ("-st", "Exclusive", "--ack", "cumulative"),
        ("-r", "5000"),
        ("--processes", "2", "-t", "2"),
    ],
)
def test_run_checks_every_message_and_leaves_nothing(
    broker: Server, raw: tuple[str, ...], batching: tuple[str, ...], shape: tuple[str, ...]
) -> None:
    before = topics(broker)
    found = figures(perf(broker, "run", "checked", *SMALL, *raw, *batching, *shape))
    copies = int(shape[shape.index("-ns") + 1]) if "-ns" in shape else 1
    assert found["void"] is None
    assert (found["published"], found["delivered"]) == (3000, 3000 * copies)
    assert (found["lost"], found["duplicates"]) == (0, 0)
    for name in ("publish_latency_ms", "end_to_end_latency_ms"):
        latency = found[name]
        assert 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["p999"]
    assert topics(broker) == before


@pytest.mark.parametrize("raw", [("--raw",), ()])
@pytest.mark.parametrize("batching", [("-db",), ()])
def test_produce_consume_and_read(
    broker: Server, raw: tuple[str, ...], batching: tuple[str, ...], topic: str
) -> None:
    everything = ("-i", "1", "--json", "-", "--warmup-time", "0", *raw)
    produced = perf(broker, "produce", topic, "-r", "0", "-s", "64", "-m", "1000", *batching, *everything)
    assert figures(produced)["published"] == 1000
    consumed = figures(perf(broker, "consume", topic, "-sp", "Earliest", "-m", "1000", *everything))
    assert consumed["delivered"] >= 1000
    assert consumed["end_to_end_latency_ms"]["p50"] > 0
    assert figures(perf(broker, "read", topic, "-n", "1000", *everything))["delivered"] >= 1000


def test_contents_in_chunks_as_the_page_has_it(broker: Server) -> None:
    """Each counts once, however many entries it is."""
    produce, consume = (
        shlex.split(each) for each in commands_of(PAGE, "## Messages in chunks", "pulsar-perf")
    )
    assert [each[:2] for each in (produce, consume)] == [
        ["pulsar-perf", "produce"],
        ["pulsar-perf", "consume"],
    ]
    found = figures(perf(broker, *produce[1:], "--json", "-"))
    assert found["published"] == 3
    status, told = broker.ask("GET", f"/admin/v2/persistent/public/default/{produce[2]}/stats")
    assert (status, json.loads(told)["msgChunkPublished"]) == (200, True)
    found = figures(perf(broker, *consume[1:], "-ac", "--json", "-"))
    assert found["delivered"] == 3


def test_keys_events_files_and_rates(broker: Server, topic: str, tmp_path: Path) -> None:
    contents = tmp_path / "contents"
    contents.write_text("first;second;")
    flags = ("-r", "0", "-m", "60", "--warmup-time", "0", "--json", "-")
    extras = ("-f", str(contents), "-e", ";", "-mk", "autoIncrement", "-set", "-p", "20", "-z", "ZLIB")
    assert figures(perf(broker, "produce", topic, *flags, *extras))["published"] == 60
    slow = ("-sp", "Earliest", "-r", "100", "-m", "60", "--json", "-", "-p", "500", "-rs")
    found = figures(perf(broker, "consume", topic, *slow))
    assert found["delivered"] >= 60
    # 60 messages at 100 a second.
    assert found["seconds"] > 0.5


def test_histogram_file(broker: Server, tmp_path: Path) -> None:
    file = tmp_path / "latencies.hgrm"
    figures(perf(broker, "run", "logged", *SMALL, "--raw", "--histogram-file", str(file)))
    lines = file.read_text().splitlines()
    assert [line.partition(",")[0] for line in lines[3:]] == ["Tag=publish", "Tag=end_to_end"]


def test_server_cpu_and_memory(broker: Server) -> None:
    found = figures(
        perf(broker, "run", "measured", *SMALL, "--raw", "--server-pid", str(broker.pid), "-time", "1")
    )
    assert found["server_rss_mb"] > 10
    assert found["server_cpu_us_per_message"] >= 0


def test_messages_of_somebody_else_void_a_run(broker: Server, topic: str, tmp_path: Path) -> None:
    flags = ("-s", "64", "-m", "50", "-r", "0", "--raw", "--warmup-time", "0")
    assert perf(broker, "produce", topic, *flags).returncode == 0
    file = tmp_path / "figures.json"
    done = perf(broker, "run", topic, *SMALL[:-1], str(file), "--raw")
    assert done.returncode == 3
    assert "void" in done.stderr
    assert json.loads(file.read_text())["void"]


@pytest.mark.parametrize("command", ["produce", "run"])
def test_a_run_that_is_over_before_its_warm_up_is_void(broker: Server, topic: str, command: str) -> None:
    done = perf(broker, command, topic, "-s", "64", "-m", "50", "-r", "0", "--warmup-time", "5")
    assert done.returncode == 3
    assert "before the warm-up" in done.stderr


def test_a_run_without_the_admin_interface_does_not_begin(broker: Server, topic: str) -> None:
    done = perf(broker, "run", topic, *SMALL, "--admin-url", "http://127.0.0.1:1")
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
    assert topic not in topics(broker)


@pytest.mark.parametrize(
    "flags",
    [
        ("--encryption-key-name", "x"),
        ("--format-class", "x"),
    ],
)
def test_flags_that_are_not_supported_are_refused_by_name(broker: Server, flags: tuple[str, ...]) -> None:
    done = perf(broker, "produce", "t", *flags)
    assert done.returncode == 2
    assert flags[0] in done.stderr


def test_a_proof_that_nobody_knows_is_refused_by_name(broker: Server) -> None:
    done = perf(broker, "produce", "t", "--auth-plugin", "x")
    assert done.returncode == 1
    assert "authPlugin: unknown plugin 'x'" in done.stderr


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("run", ("-s", "10", "-m", "5")),
        ("run", ()),
        ("run", ("--raw", "-z", "LZ4", "-m", "5")),
        ("produce", ("--raw", "-z", "LZ4")),
        ("produce", ("--raw", "-mk", "random")),
        ("consume", ("--raw", "-r", "5")),
        ("read", ("--raw", "-r", "5")),
        ("produce", ("--raw", "-ch")),
        ("consume", ("--raw", "-mc", "2")),
        ("consume", ("--raw", "-ac")),
        ("consume", ("--raw", "-e", "5")),
        ("read", ("-m", "nowhere")),
    ],
)
def test_what_cannot_be_done_is_said(broker: Server, command: str, flags: tuple[str, ...]) -> None:
    done = perf(broker, command, "t", *flags)
    assert done.returncode == 1
    assert "InvalidConfiguration" in done.stderr
