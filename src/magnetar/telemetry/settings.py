"""Settings of telemetry from OpenTelemetry's environment variables. As in Pulsar, no metrics are sent unless
``OTEL_SDK_DISABLED`` is ``false``; OpenTelemetry specifies the other variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urlsplit

from magnetar.config.reading import SettingsContradict
from magnetar.io.tls import ClientTls, TlsFiles
from magnetar.lazy_dataclass import dataclass

_OTLP = "OTEL_EXPORTER_OTLP_"
_PATH = "/v1/metrics"
_DEFAULT_ENDPOINT = "http://localhost:4318"
_OF_BOTH = (
    "ENDPOINT",
    "PROTOCOL",
    "HEADERS",
    "TIMEOUT",
    "COMPRESSION",
    "CERTIFICATE",
    "CLIENT_CERTIFICATE",
    "CLIENT_KEY",
)
"""Variables that can be set for metrics or for all signals; the variable for metrics takes precedence."""
_HONOURED = frozenset(
    (
        "OTEL_SDK_DISABLED",
        "OTEL_METRICS_EXPORTER",
        "OTEL_METRIC_EXPORT_INTERVAL",
        "OTEL_SERVICE_NAME",
        "OTEL_RESOURCE_ATTRIBUTES",
        f"{_OTLP}METRICS_TEMPORALITY_PREFERENCE",
        *(_OTLP + name for name in _OF_BOTH),
        *(f"{_OTLP}METRICS_{name}" for name in _OF_BOTH),
    )
)
_OTHER_SIGNALS = ("OTEL_TRACES_EXPORTER", "OTEL_LOGS_EXPORTER")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Matches names of HTTP headers (RFC 9110)."""
_LONGEST_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TelemetrySettings:
    """Collector address, interval, and attributes of the export."""

    url: str
    """The URL of the collector, including the path."""
    headers: Mapping[str, str]
    timeout_seconds: float
    """Timeout of a request, in seconds."""
    interval_seconds: float
    gzip: bool
    tls: ClientTls
    """TLS settings for an ``https`` URL."""
    service_name: str
    """The service name; empty: Pulsar's name for this kind of process."""
    resource: Mapping[str, str]
    """Additional attributes of the process."""
    ignored: tuple[str, ...]
    """Names of variables that are set but have no effect."""


def telemetry_settings(environment: Mapping[str, str]) -> TelemetrySettings | None:
    """Returns the settings of telemetry; None: telemetry is disabled.

    :param environment: the environment of the process
    :raises SettingsContradict: a variable has a value that is not supported, or is malformed
    """
    said = {name: text.strip() for name, text in environment.items() if text.strip()}
    if not _is_on(said):
        return None
    _check_choices(said)
    url = _url(said)
    return TelemetrySettings(
        url=url,
        headers=_headers(said),
        timeout_seconds=_milliseconds(said, _name_of(said, "TIMEOUT"), 10_000) / 1000,
        interval_seconds=_milliseconds(said, "OTEL_METRIC_EXPORT_INTERVAL", 60_000) / 1000,
        gzip=_of(said, "COMPRESSION") == "gzip",
        tls=ClientTls(
            TlsFiles(
                certificate=_of(said, "CLIENT_CERTIFICATE"),
                key=_of(said, "CLIENT_KEY"),
                trust=_of(said, "CERTIFICATE"),
            )
        ),
        service_name=said.get("OTEL_SERVICE_NAME", ""),
        resource=dict(_pairs(said, "OTEL_RESOURCE_ATTRIBUTES")),
        ignored=tuple(_ignored(said)),
    )


def _is_on(said: Mapping[str, str]) -> bool:
    disabled = said.get("OTEL_SDK_DISABLED", "true").lower()
    if disabled not in ("true", "false"):
        raise SettingsContradict(f"OTEL_SDK_DISABLED must be true or false, not {disabled!r}")
    exporter = said.get("OTEL_METRICS_EXPORTER", "otlp").lower()
    if disabled == "true" or exporter == "none":
        return False
    if exporter != "otlp":
        raise SettingsContradict(
            f"OTEL_METRICS_EXPORTER={exporter} is not supported; use otlp or none (Prometheus reads /metrics)"
        )
    return True


def _check_choices(said: Mapping[str, str]) -> None:
    wanted = (
        (_name_of(said, "PROTOCOL"), ("http/protobuf",)),
        (_name_of(said, "COMPRESSION"), ("gzip", "none")),
        (f"{_OTLP}METRICS_TEMPORALITY_PREFERENCE", ("cumulative",)),
    )
    for name, choices in wanted:
        if said.get(name, choices[0]).lower() not in choices:
            raise SettingsContradict(f"{name}={said[name]} is not supported; use {' or '.join(choices)}")


def _name_of(said: Mapping[str, str], name: str) -> str:
    """Returns the name of the variable that takes effect: the one for metrics if it is set, otherwise the one
    for all signals."""
    own = f"{_OTLP}METRICS_{name}"
    return own if own in said else _OTLP + name


def _of(said: Mapping[str, str], name: str) -> str:
    return said.get(_name_of(said, name), "")


def _url(said: Mapping[str, str]) -> str:
    name = _name_of(said, "ENDPOINT")
    text = said.get(name, _DEFAULT_ENDPOINT)
    if name == f"{_OTLP}ENDPOINT":
        # The endpoint of all signals is the base of their paths.
        text = text.rstrip("/") + _PATH
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise SettingsContradict(
            f"{name}: {text!r} is not an endpoint URL; use a form like {_DEFAULT_ENDPOINT}"
        )
    if parts.username is not None:
        raise SettingsContradict(f"{name} must not contain credentials; use {_OTLP}HEADERS for them")
    return text


def _milliseconds(said: Mapping[str, str], name: str, default: int) -> int:
    text = said.get(name, str(default))
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= _LONGEST_MS:
        raise SettingsContradict(f"{name} must be milliseconds from 1 to {_LONGEST_MS}, not {text!r}")
    return int(text)


def _headers(said: Mapping[str, str]) -> dict[str, str]:
    name = _name_of(said, "HEADERS")
    found = dict(_pairs(said, name))
    for header, value in found.items():
        if not (_TOKEN.fullmatch(header) and value.isascii() and value.isprintable()):
            # The value may be a secret.
            raise SettingsContradict(f"{name}: {header!r} is not a valid HTTP header")
    return found


def _pairs(said: Mapping[str, str], name: str) -> Iterator[tuple[str, str]]:
    """Yields the pairs in a variable with a value like ``a=1,b=2``, with percent-encoding decoded."""
    for pair in filter(None, (piece.strip() for piece in said.get(name, "").split(","))):
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            # The text may contain a secret.
            raise SettingsContradict(
                f"{name} must be key=value pairs separated by commas; one has no key or no ="
            )
        yield unquote(key.strip()), unquote(value.strip())


def _ignored(said: Mapping[str, str]) -> Iterator[str]:
    for name in sorted(said):
        switched_off = name in _OTHER_SIGNALS and said[name].lower() == "none"
        if name.startswith("OTEL_") and name not in _HONOURED and not switched_off:
            yield name
