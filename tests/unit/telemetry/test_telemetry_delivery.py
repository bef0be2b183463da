"""Requests on their way to a collector that is there, goes away, is somebody else, or refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from certificates import Authority
from otlp_collector import collecting

from magnetar.telemetry.delivery import Delivery, NotDelivered
from magnetar.telemetry.settings import telemetry_settings


def to(url: str, **said: str) -> Delivery:
    environment = {f"OTEL_EXPORTER_OTLP_{name}": text for name, text in said.items()}
    settings = telemetry_settings(
        {"OTEL_SDK_DISABLED": "false", "OTEL_EXPORTER_OTLP_ENDPOINT": url, **environment}
    )
    assert settings is not None
    return Delivery(settings)


def test_a_collector_that_hangs_up_is_asked_again() -> None:
    with collecting() as collector:
        collector.hangs_up = True
        delivery = to(collector.url)
        assert [delivery.send(b"") for _ in range(3)] == ["", "", ""]
        assert len(collector.requests) == 3
        delivery.close()


def test_what_is_said_by_no_collector_is_no_success() -> None:
    with collecting() as collector:
        delivery = to(collector.url)
        collector.answer = b"<html>hello</html>"
        with pytest.raises(NotDelivered, match="is not an OTLP response"):
            delivery.send(b"")
        collector.answer = None
        collector.status = 302
        with pytest.raises(NotDelivered, match="status 302"):
            delivery.send(b"")
        delivery.close()
    with pytest.raises(NotDelivered, match=r"127\.0\.0\.1"):
        delivery.send(b"")


def test_a_collector_is_known_by_its_certificate(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    with collecting(authority.server()) as collector:
        delivery = to(collector.url, CERTIFICATE=authority.trust)
        assert delivery.send(b"") == ""
        delivery.close()
        with pytest.raises(NotDelivered, match="CERTIFICATE_VERIFY_FAILED"):
            to(collector.url, CERTIFICATE=other.trust).send(b"")
    assert len(collector.requests) == 1


def test_nothing_is_sent_after_the_end() -> None:
    with collecting() as collector:
        delivery = to(collector.url)
        delivery.send(b"")
        delivery.stop()
        with pytest.raises(NotDelivered, match="stopped"):
            delivery.send(b"")
        delivery.close()
    assert len(collector.requests) == 1
