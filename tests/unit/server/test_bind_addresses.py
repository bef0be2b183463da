"""Where a broker listens, and what it tells clients."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.config.settings import Settings, SettingsContradict, load
from magnetar.server.addresses import BindAddress, advertised, bind_addresses, check_listeners


def settings(**given: str) -> Settings:
    return load(None, frozenset(), given).settings


def test_ports_are_bind_addresses_and_a_port_that_is_empty_is_none() -> None:
    found = bind_addresses(settings(brokerServicePortTls="6651", webServicePortTls="0", bindAddress="::1"))
    assert [(bind.scheme, bind.host, bind.port, bind.tls) for bind in found] == [
        ("pulsar", "::1", 6650, False),
        ("pulsar+ssl", "::1", 6651, True),
        ("http", "::1", 8080, False),
        ("https", "::1", 0, True),
    ]


def test_tls_alone(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerServicePort=\nwebServicePort=\nbrokerServicePortTls=6651\nwebServicePortTls=8443\n"
    )
    found = bind_addresses(load(file, frozenset(), {}).settings)
    assert [bind.scheme for bind in found] == ["pulsar+ssl", "https"]


def test_addresses_to_bind_have_listeners() -> None:
    text = "in:pulsar://10.0.0.1:6660, out:pulsar+ssl://[fe80::1%eth0]:6661,https://h:1"
    listeners = "in:pulsar://a:1,out:pulsar+ssl://b:2"
    given = settings(bindAddresses=text, advertisedListeners=listeners)
    found = bind_addresses(given)
    assert list(found[2:]) == [
        BindAddress("pulsar", "10.0.0.1", 6660, "in"),
        BindAddress("pulsar+ssl", "fe80::1%eth0", 6661, "out"),
        BindAddress("https", "h", 1),
    ]
    check_listeners(given, found)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"bindAddresses": "in:pulsar://h:1"}, "'in'"),
        ({"bindAddresses": "in:ftp://h:1", "advertisedListeners": "in:pulsar://h:1"}, "ftp"),
        ({"bindAddresses": "pulsar://h:70000"}, "70000"),
        ({"bindAddresses": "pulsar://h"}, "pulsar://h"),
        ({"bindAddresses": "pulsar://h:1/x"}, "scheme"),
        ({"bindAddresses": "pulsar://h:1,http://h:1"}, "two ports"),
        ({"brokerServicePortTls": "6650"}, "two ports"),
        ({"tlsEnabled": "true"}, "tlsEnabled"),
        ({"advertisedListeners": "pulsar://h:1"}, "name"),
        ({"advertisedListeners": "a:pulsar://h:1,a:pulsar://i:1"}, "two addresses"),
        ({"advertisedListeners": "a:pulsar://h:1", "internalListenerName": "b"}, "'b'"),
        ({"internalListenerName": "b"}, "'b'"),
        ({"advertisedListeners": "a:pulsar://h:1", "advertisedAddress": "h"}, "advertisedAddress"),
        ({"advertisedListeners": "a:pulsar://h\r\nX:1"}, "advertisedListeners"),
    ],
)
def test_contradictions_are_named(given: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsContradict, match=why):
        check_listeners(settings(**given), bind_addresses(settings(**given)))


def test_clients_are_told_what_is_there() -> None:
    ports = {"pulsar": 1, "pulsar+ssl": 2, "http": 3, "https": 4}
    told = advertised(settings(), "[::1]", ports).main
    assert (told.binary, told.binary_tls) == ("pulsar://[::1]:1", "pulsar+ssl://[::1]:2")
    assert (told.http, told.http_tls) == ("http://[::1]:3", "https://[::1]:4")
    told = advertised(settings(), "h", {"pulsar+ssl": 2, "https": 4}).main
    assert (told.binary, told.http) == (None, None)


def test_clients_are_told_the_addresses_of_their_listener_and_the_internal_one_else() -> None:
    given = settings(
        advertisedListeners="in:pulsar://a:1,in:http://a:2,out:pulsar+ssl://b:3", internalListenerName="out"
    )
    told = advertised(given, "h", {"pulsar": 9, "http": 8})
    assert told.main == told.listeners["out"]
    assert (told.main.binary, told.main.binary_tls, told.main.http) == (
        None,
        "pulsar+ssl://b:3",
        "http://h:8",
    )
    assert told.listeners["in"].http == "http://a:2"
    first = settings(advertisedListeners="in:pulsar://a:1,out:pulsar+ssl://b:3")
    assert advertised(first, "h", {}).main.binary == "pulsar://a:1"
