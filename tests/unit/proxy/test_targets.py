"""Nobody's request reaches what is no broker."""

from __future__ import annotations

import pytest

from magnetar.proxy.brokers import AllowedTargets, BrokerTarget, TargetDenied, is_in, networks_of, target_of


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [("b1:6650", "b1", 6650), ("[::1]:6651", "::1", 6651), ("10.0.0.1:1", "10.0.0.1", 1)],
)
def test_targets_are_read(text: str, host: str, port: int) -> None:
    assert target_of(text) == BrokerTarget(host, port)
    assert str(target_of(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "b1", "b1:", ":6650", "b1:0", "b1:65536", "b1:-1", "a b:1", "a/b:1", "b1:1 ", "u@h:1", "b1:٣"],
)
def test_what_is_no_target_is_denied(text: str) -> None:
    with pytest.raises(TargetDenied):
        target_of(text)


def test_ports_have_to_be_listed() -> None:
    allowed = AllowedTargets(ports="6650,6651")
    allowed.check(BrokerTarget("anything", 6651))
    with pytest.raises(TargetDenied, match="brokerProxyAllowedTargetPorts"):
        allowed.check(BrokerTarget("anything", 22))


@pytest.mark.parametrize(
    ("hosts", "host", "fine"),
    [
        ("*", "anything", True),
        ("b1, b2", "b2", True),
        ("b1", "b1.evil", False),
        ("*.example.com", "B1.Example.com", True),
        ("*.example.com", "example.com", False),
        ("b.1", "bx1", False),
        ("", "b1", False),
    ],
)
def test_names_have_to_match(hosts: str, host: str, fine: bool) -> None:
    allowed = AllowedTargets(hosts=hosts)
    if fine:
        allowed.check(BrokerTarget(host, 1))
    else:
        with pytest.raises(TargetDenied, match="brokerProxyAllowedHostNames"):
            allowed.check(BrokerTarget(host, 1))


def test_addresses_have_to_be_in_a_network() -> None:
    allowed = AllowedTargets(addresses="10.0.0.0/8, 2001:db8::/32,192.168.1.7")
    assert allowed.allows_address("10.200.1.1")
    assert allowed.allows_address("::ffff:10.1.1.1")
    assert allowed.allows_address("2001:db8::5")
    assert allowed.allows_address("192.168.1.7")
    assert not allowed.allows_address("192.168.1.8")
    assert not allowed.allows_address("169.254.169.254")
    assert not allowed.allows_address("nonsense")
    assert AllowedTargets().allows_address("169.254.169.254")


@pytest.mark.parametrize("wrong", [{"addresses": "10.0.0.0/33"}, {"ports": "x"}, {"ports": "0"}])
def test_lists_that_cannot_be_read_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError):
        AllowedTargets(**wrong)


def test_an_address_is_in_a_network_of_its_own_version() -> None:
    assert is_in("127.0.0.1", networks_of("127.0.0.0/8,::1/128"))
    assert not is_in("::2", networks_of("127.0.0.0/8,::1/128"))
