"""What ``deploy/`` holds is understood by those it is for, and by the commands that it starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from magnetar.cli import magnetar as command_line
from magnetar.config.proxy import load_proxy
from magnetar.config.settings import load
from magnetar.config.table import cluster_settings_table, proxy_settings_table, settings_table
from magnetar.config.websocket import load_websockets
from magnetar.server.configuration_check import check

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CHART = DEPLOY / "helm" / "magnetar"
_EXPOSURE = 20
"""In tenths, as ``systemd-analyze security`` counts: 100 is everything."""


def understood(arguments: list[str]) -> str:
    """The command that a command line of ``magnetar`` is for."""
    parsed = command_line._parser().parse_args(arguments)
    return str(parsed.command)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_start_what_there_is(unit: Path) -> None:
    found = re.search(r"^ExecStart=/opt/magnetar/bin/magnetar (.+)$", unit.read_text(), re.MULTILINE)
    assert found is not None
    command = found[1].split()
    assert understood(command) == unit.stem.removeprefix("magnetar-")
    config = Path(command[command.index("--config") + 1])
    assert (DEPLOY / "conf" / config.name).exists()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_units_are_understood_and_hardened(unit: Path, tmp_path: Path) -> None:
    # Neither the program nor the user is on this machine.
    text = unit.read_text().replace("/opt/magnetar/bin/magnetar", "/bin/true")
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"^(User|Group)=magnetar$", r"\1=root", text, flags=re.MULTILINE))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--offline=true",
            f"--threshold={_EXPOSURE}",
            "--no-pager",
            str(unit),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-2000:] + told.stderr


@pytest.mark.parametrize("folder", ["conf", "compose"])
def test_settings_are_taken_without_a_word(folder: str) -> None:
    assert load(DEPLOY / folder / "broker.conf", cluster=True).warnings == ()
    assert load_proxy(DEPLOY / folder / "proxy.conf").warnings == ()
    assert load(DEPLOY / "conf" / "standalone.conf").warnings == ()
    assert load_websockets(DEPLOY / "conf" / "websocket.conf").warnings == ()


@pytest.mark.parametrize("name", ["broker", "proxy", "standalone", "websocket"])
def test_settings_let_nobody_in_from_outside_without_authentication(name: str) -> None:
    text = (DEPLOY / "conf" / f"{name}.conf").read_text()
    assert re.findall(r"^bindAddress=(.*)$", text, re.MULTILINE) == ["127.0.0.1"]
    if name in ("broker", "standalone"):
        assert not check(DEPLOY / "conf" / f"{name}.conf", name).warnings


def test_the_image_warns_and_advertises_nothing_wrong() -> None:
    found = re.search(r"^CMD (\[.+\])$", (DEPLOY / "container" / "Containerfile").read_text(), re.MULTILINE)
    assert found is not None
    words = yaml.safe_load(found[1])
    assert words[words.index("--bind-address") + 1] == "0.0.0.0"
    assert words[words.index("--advertised-address") + 1] == "localhost"


def test_probes_are_answered_by_the_event_loop() -> None:
    for part in ("broker", "proxy", "standalone"):
        text = (CHART / "templates" / f"{part}.yaml").read_text()
        assert "tcpSocket" not in text
        assert len(re.findall(r"httpGet: \{path: /status.html", text)) == text.count("Probe:")


def test_the_composition_fits_together() -> None:
    composed = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    services: dict[str, dict[str, Any]] = composed["services"]
    started = []
    for name, service in services.items():
        for wanted in service.get("depends_on", {}):
            assert wanted in services, name
        for volume in service.get("volumes", []):
            source = volume.partition(":")[0]
            there = (
                (DEPLOY / "compose" / source).exists() if source[0] == "." else source in composed["volumes"]
            )
            assert there, (name, volume)
        if service.get("image") == "magnetar":
            started.append(understood(service["command"]))
    assert sorted(started) == ["broker"] * 3 + ["initialize-cluster-metadata", "proxy"]
    built = services["cluster-metadata"]["build"]
    assert (DEPLOY / "compose" / built["context"] / built["dockerfile"]).exists()


def test_one_broker_in_a_container_has_a_volume_and_is_reached_by_this_machine_alone() -> None:
    composed = yaml.safe_load((DEPLOY / "compose" / "standalone.yaml").read_text())
    [service] = composed["services"].values()
    assert understood(service["command"]) == "standalone"
    assert all(each.startswith("127.0.0.1:") for each in service["ports"])
    assert [each.partition(":")[0] for each in service["volumes"]] == list(composed["volumes"])
    built = service["build"]
    assert (DEPLOY / "compose" / built["context"] / built["dockerfile"]).exists()


def test_the_image_is_made_of_what_there_is() -> None:
    text = (DEPLOY / "container" / "Containerfile").read_text()
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE)
    for source in " ".join(copied).split():
        assert (ROOT / source).exists(), source
    found = re.search(r"^CMD (\[.+\])$", text, re.MULTILINE)
    assert found is not None
    assert understood(yaml.safe_load(found[1])) == "standalone"


def test_the_chart_sets_settings_that_there_are() -> None:
    text = (CHART / "templates" / "configmap.yaml").read_text()
    broker, _, proxy = text.partition("proxy.conf: |")
    for part, table in ((broker, cluster_settings_table()), (proxy, proxy_settings_table())):
        keys = re.findall(r"^    (\w+)=", part, re.MULTILINE)
        assert len(keys) > 5
        assert set(keys) <= table.keys()
    alone = re.findall(r"^    (\w+)=", (CHART / "templates" / "standalone.yaml").read_text(), re.MULTILINE)
    assert len(alone) > 4
    assert set(alone) <= settings_table().keys()
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values["broker"]["settings"].keys() <= cluster_settings_table().keys()


@pytest.mark.skipif(os.environ.get("MAGNETAR_CHART") != "1", reason="builds Helm for minutes: make soak")
@pytest.mark.timeout(1800)
def test_the_chart_is_rendered_to_what_kubernetes_knows() -> None:
    program = Path(__file__).parent / "chart"
    done = subprocess.run(
        ["go", "run", ".", str(CHART)], cwd=program, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["8", "8", "4", "3", "3"]
