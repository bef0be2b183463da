"""Warnings about listeners that other machines reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.config.settings import load
from magnetar.server.addresses import bind_addresses, exposures, is_loopback
from magnetar.server.configuration_check import check
from magnetar.server.diagnosis import broker

SECURED = "authenticationEnabled=true\nauthenticationProviders=magnetar\n"


def told(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "standalone.conf"
    path.write_text(text)
    settings = load(path).settings
    return [str(each) for each in exposures(settings, bind_addresses(settings))]


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LocalHost", "::1%lo"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.1", "fe80::1%eth0", "broker-1", "128.0.0.1"])
def test_other_hosts_are_reached_by_others(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("text", ["", "bindAddress=127.0.0.1", "bindAddress=::1", "bindAddress=localhost"])
def test_nothing_is_said_where_only_this_machine_reaches_it(tmp_path: Path, text: str) -> None:
    assert told(tmp_path, text) == []


def test_all_addresses_without_authentication_advertise_localhost(tmp_path: Path) -> None:
    reached, misled = told(tmp_path, "bindAddress=0.0.0.0")
    assert reached == (
        "Other machines reach pulsar on 0.0.0.0:6650, http on 0.0.0.0:8080 without authentication: anyone "
        "there may publish, consume and administer. Set authenticationEnabled=true, or bindAddress=127.0.0.1"
    )
    assert "advertises localhost" in misled
    assert "advertisedAddress" in misled


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("bindAddress=10.0.0.1", 1),
        ("bindAddress=0.0.0.0\nadvertisedAddress=broker-1", 1),
        ("bindAddress=0.0.0.0\nadvertisedListeners=out:pulsar://broker-1:6650", 1),
        (f"bindAddress=0.0.0.0\nadvertisedAddress=broker-1\n{SECURED}", 0),
        (f"bindAddress=0.0.0.0\n{SECURED}", 1),
        ("bindAddresses=out:pulsar://0.0.0.0:6652\nadvertisedListeners=out:pulsar://broker-1:6652", 1),
    ],
)
def test_each_is_said_where_it_is_so(tmp_path: Path, text: str, count: int) -> None:
    assert len(told(tmp_path, text)) == count


def test_check_and_doctor_say_it(tmp_path: Path) -> None:
    path = tmp_path / "standalone.conf"
    path.write_text("bindAddress=0.0.0.0\nbrokerServicePort=0\nwebServicePort=0\n")
    checked = check(path, "standalone")
    assert not checked.problems
    assert len(checked.warnings) == 2
    found = [each for each in broker(path, tmp_path / "data") if each.subject == "exposure"]
    assert [each.state.value for each in found] == ["warn", "warn"]
    assert found[1].advice.startswith("Set advertisedAddress")
