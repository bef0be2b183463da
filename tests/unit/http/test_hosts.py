"""Names that plain HTTP requests may call a server by: none that a page can make lead here."""

from __future__ import annotations

import pytest

from magnetar.http.engine.message import Request
from magnetar.http.engine.origins import Hosts

OWN = ("", "broker.example.com", "[2001:db8::1]")


def refusal(host: str | None, *allowed: str, secure: bool = False) -> str | None:
    headers = {} if host is None else {"host": host}
    return Hosts(OWN, allowed).refusal(Request("GET", "/", headers=headers, secure=secure))


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "127.0.0.1:8080",
        "10.1.2.3",
        "[::1]:8080",
        "[fe80::1%25eth0]:8080",
        "localhost",
        "LOCALHOST:8080",
        "localhost.:8080",
        "broker.example.com:8080",
        "Broker.Example.com.",
        # A container, a service, a machine of the same network.
        "broker",
        "magnetar-proxy:8080",
        "magnetar-0.magnetar.orders.svc.cluster.local:8080",
        "magnetar-0.magnetar.orders.svc:8080",
        "host.docker.internal:8080",
        "broker.localhost",
    ],
)
def test_names_that_no_page_can_have(host: str | None) -> None:
    assert refusal(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "evil.example.:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8080",
        "evil.example:80:80",
        "notbroker.example.com",
        "sub.broker.example.com",
        "cluster.local.evil.example",
        "broker.local",
        "a.b@127.0.0.1.x",
    ],
)
def test_names_that_a_page_may_have_made_lead_here(host: str) -> None:
    reason = refusal(host)
    assert reason is not None
    assert repr(host) in reason
    assert "magnetarHttpAllowedHosts" in reason


def test_settings_allow_others() -> None:
    listed = ("pulsar.example.org", "*.lab.example")
    assert refusal("pulsar.example.org:80", *listed) is None
    assert refusal("a.lab.example", *listed) is None
    assert refusal("a.b.lab.example", *listed) is None
    assert refusal("lab.example", *listed) is not None
    assert refusal("evillab.example", *listed) is not None
    assert refusal("evil.example", "*") is None


def test_with_tls_the_certificate_says_it() -> None:
    assert refusal("evil.example", secure=True) is None


@pytest.mark.parametrize("text", ["http://a.example", "a.example:80", "*a.example", "a/b", "", "*."])
def test_what_is_no_name_cannot_be_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="magnetarHttpAllowedHosts"):
        Hosts((), (text,))
