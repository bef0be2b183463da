"""The process around the broker: starts, says where it serves, refuses, stops."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest

LINE = re.compile(
    r"Magnetar standalone is serving pulsar://([^ ]+):(\d+) and http://([^ ]+):(\d+) "
    r"\(data in (.*), started in \d+ ms\)\n"
)


def command(data: Path, *more: str) -> Sequence[str]:
    return [
        sys.executable,
        "-m",
        "magnetar",
        "standalone",
        "--data-dir",
        str(data),
        "--binary-port=0",
        "--http-port=0",
        *more,
    ]


@contextmanager
def serving(data: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], re.Match[str]]]:
    process = subprocess.Popen(
        command(data, *more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = LINE.fullmatch(line)
        if found is None:
            process.kill()
            pytest.fail(f"{line!r} {process.communicate()[1]}")
        yield process, found
    finally:
        process.kill()
        process.communicate()


def refused(data: Path, *more: str) -> str:
    run = subprocess.run(command(data, *more), capture_output=True, text=True, timeout=30)
    assert run.returncode == 1
    assert run.stdout == ""
    return run.stderr


def ask(port: int, path: str) -> object:
    connection = HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request("GET", path)
    text = connection.getresponse().read()
    connection.close()
    return json.loads(text)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_and_stops_in_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path / "data", "--log-format", "json") as (process, line):
        port = int(line[4])
        assert line[5] == str(tmp_path / "data")
        assert ask(port, "/admin/v2/namespaces/public") == ["public/default"]
        assert ask(port, "/admin/v2/namespaces/sample") == ["sample/standalone/ns1"]
        assert ask(port, "/lookup/v2/topic/persistent/public/default/t") == {
            "brokerUrl": f"pulsar://{line[1]}:{line[2]}",
            "httpUrl": f"http://{line[3]}:{line[4]}",
            "nativeUrl": f"pulsar://{line[1]}:{line[2]}",
            "brokerUrlSsl": "",
        }
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0
        assert out == ""
        assert [json.loads(text)["event"] for text in err.splitlines()][-1] == "stopped"


def test_a_second_process_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path):
        told = refused(tmp_path)
        assert str(tmp_path) in told
        assert "in use by another process" in told
    with serving(tmp_path):
        pass


def test_what_is_told_to_clients_can_be_set(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("clusterName=mine\nstatsUpdateFrequencyInSecs=5\n")
    more = ("--advertised-address", "example.org", "--config", str(config))
    with serving(tmp_path / "data", *more) as (_, line):
        assert (line[1], line[3]) == ("example.org", "example.org")
        port = int(line[4])
        assert ask(port, "/admin/v2/clusters") == ["mine"]
        runtime = ask(port, "/admin/v2/brokers/configuration/runtime")
        assert isinstance(runtime, dict)
        assert runtime["statsUpdateFrequencyInSecs"] == "5"


def test_a_configuration_that_cannot_be_honoured_does_not_start(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("strictBookieAffinityEnabled=true\nbrokerMaxConnections=many\n")
    told = refused(tmp_path / "data", "--config", str(config)).splitlines()
    assert len(told) == 2
    assert all(line.startswith(f"magnetar: {config}:") for line in told)
    config.write_text("strictBookieAffinityEnabled=true\n")
    more = ("--config", str(config), "--accept-unhonoured", "strictBookieAffinityEnabled")
    with serving(tmp_path / "data", *more):
        pass


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with serving(tmp_path / "one") as (_, line):
        told = refused(tmp_path / "two", f"--http-port={line[4]}")
        assert f"HTTP port {line[4]} is in use by process " in told
        told = refused(tmp_path / "two", f"--binary-port={line[2]}")
        assert f"binary port {line[2]} is in use by process " in told


def test_a_data_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file" / "data") in refused(tmp_path / "file" / "data")


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the age of a process comes from /proc")
def test_the_time_to_start_counts_from_the_process(tmp_path: Path) -> None:
    with serving(tmp_path) as (_, line):
        started = int(re.findall(r"started in (\d+) ms", line[0])[0])
        assert 0 < started < 60_000


def test_addresses_that_other_machines_reach_without_authentication_are_warned_of(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--bind-address", "0.0.0.0") as (process, _line):
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
    [warning] = [each for each in log.splitlines() if "without authentication" in each]
    assert "WARN" in warning
    assert "Set authenticationEnabled=true, or bindAddress=127.0.0.1" in warning
    with serving(tmp_path / "data") as (process, _line):
        process.send_signal(signal.SIGTERM)
        assert "without authentication" not in process.communicate(timeout=30)[1]
