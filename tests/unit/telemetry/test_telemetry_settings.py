"""Variables of OpenTelemetry, and what becomes of them."""

from __future__ import annotations

import pytest

from magnetar.config.reading import SettingsContradict
from magnetar.server.telemetry import wanted_telemetry
from magnetar.telemetry.settings import TelemetrySettings, telemetry_settings

ON = {"OTEL_SDK_DISABLED": "false"}


def of(**said: str) -> TelemetrySettings:
    found = telemetry_settings({**ON, **{f"OTEL_{name}": text for name, text in said.items()}})
    assert found is not None
    return found


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SDK_DISABLED": "TRUE", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_SDK_DISABLED": ""},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"},
        {**ON, "OTEL_METRICS_EXPORTER": "none"},
    ],
)
def test_nothing_is_sent_unless_it_is_switched_on(environment: dict[str, str]) -> None:
    assert telemetry_settings(environment) is None


def test_defaults_are_those_of_the_specification() -> None:
    found = of()
    assert found.url == "http://localhost:4318/v1/metrics"
    assert (found.interval_seconds, found.timeout_seconds, found.gzip) == (60.0, 10.0, False)
    assert (dict(found.headers), dict(found.resource), found.service_name, found.ignored) == ({}, {}, "", ())


def test_what_is_said_of_metrics_wins() -> None:
    found = of(
        EXPORTER_OTLP_ENDPOINT="http://all:1/",
        EXPORTER_OTLP_METRICS_ENDPOINT="https://own:2/in",
        EXPORTER_OTLP_HEADERS="a=1",
        EXPORTER_OTLP_METRICS_HEADERS="x-key = k%3D1 , b=",
        EXPORTER_OTLP_TIMEOUT="1",
        EXPORTER_OTLP_METRICS_TIMEOUT="2500",
        EXPORTER_OTLP_CERTIFICATE="/ca.pem",
        EXPORTER_OTLP_COMPRESSION="gzip",
    )
    assert found.url == "https://own:2/in"
    assert found.headers == {"x-key": "k=1", "b": ""}
    assert found.timeout_seconds == 2.5
    assert found.gzip
    assert found.tls.files.trust == "/ca.pem"
    assert of(EXPORTER_OTLP_ENDPOINT="http://all:1/").url == "http://all:1/v1/metrics"


def test_what_changes_nothing_is_named() -> None:
    found = of(TRACES_EXPORTER="none", LOGS_EXPORTER="otlp", EXPORTER_OTLP_INSECURE="true")
    assert found.ignored == ("OTEL_EXPORTER_OTLP_INSECURE", "OTEL_LOGS_EXPORTER")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"SDK_DISABLED": "no"}, "OTEL_SDK_DISABLED must be true or false"),
        ({"EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL=grpc is not supported"),
        ({"EXPORTER_OTLP_METRICS_PROTOCOL": "http/json"}, "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=http/json"),
        ({"EXPORTER_OTLP_COMPRESSION": "zstd"}, "OTEL_EXPORTER_OTLP_COMPRESSION=zstd"),
        ({"EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": "delta"}, "TEMPORALITY_PREFERENCE=delta"),
        ({"METRICS_EXPORTER": "prometheus"}, "OTEL_METRICS_EXPORTER=prometheus"),
        ({"METRIC_EXPORT_INTERVAL": "0"}, "OTEL_METRIC_EXPORT_INTERVAL must be milliseconds"),
        ({"METRIC_EXPORT_INTERVAL": "1m"}, "OTEL_METRIC_EXPORT_INTERVAL must be milliseconds"),
        ({"EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT: 'collector:4318"),
        ({"EXPORTER_OTLP_ENDPOINT": "http://c:99999"}, "is not an endpoint URL; use a form like"),
        ({"EXPORTER_OTLP_HEADERS": "a b=1"}, "'a b' is not a valid HTTP header"),
        ({"EXPORTER_OTLP_HEADERS": "a=1%0D%0Ab: 2"}, "'a' is not a valid HTTP header"),
        ({"EXPORTER_OTLP_HEADERS": "api-key"}, "must be key=value pairs"),
        ({"RESOURCE_ATTRIBUTES": "=x"}, "OTEL_RESOURCE_ATTRIBUTES must be key=value pairs"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(said: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsContradict, match=reason.replace("(", "\\(")):
        of(**said)


@pytest.mark.parametrize("said", [{"HEADERS": "key:secret"}, {"ENDPOINT": "http://me:secret@c:1"}])
def test_refusals_hold_no_secrets(said: dict[str, str]) -> None:
    with pytest.raises(SettingsContradict) as raised:
        of(**{f"EXPORTER_OTLP_{name}": text for name, text in said.items()})
    assert "secret" not in str(raised.value)


def test_a_certificate_that_is_not_there_stops_the_start() -> None:
    with pytest.raises(SettingsContradict, match=r"/nowhere\.pem cannot be read"):
        wanted_telemetry({**ON, "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"})
