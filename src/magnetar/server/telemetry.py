"""Telemetry of a broker's process: from its environment to what sends."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from magnetar import __version__
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.config.reading import SettingsContradict
from magnetar.io.interfaces import Io
from magnetar.io.tls import ClientContext, TlsRefused
from magnetar.telemetry.settings import TelemetrySettings, telemetry_settings

if TYPE_CHECKING:
    from magnetar.telemetry.exporter import Exporter

log = logging.getLogger(__name__)

_SERVICE_NAME = "pulsar-broker"
"""Pulsar's own: boards and alerts ask for it."""


def wanted_telemetry(environment: Mapping[str, str]) -> TelemetrySettings | None:
    """What a broker is to send; None: nothing.

    :raises SettingsContradict: what the environment wants cannot be done
    """
    settings = telemetry_settings(environment)
    if settings is None:
        return None
    try:
        from magnetar.telemetry import encoding
    except ImportError as error:
        raise SettingsContradict(
            f"OTEL_SDK_DISABLED=false requires the extra otlp (pip install 'magnetar[otlp]'): {error}"
        ) from error
    try:
        ClientContext(settings.tls)()
    except TlsRefused as error:
        raise SettingsContradict(f"OTEL_EXPORTER_OTLP_CERTIFICATE or a related variable: {error}") from error
    log.info("sending telemetry", extra={"to": settings.url, "scope": encoding.SCOPE})
    for name in settings.ignored:
        log.warning("environment variable ignored", extra={"variable": name})
    return settings


def exporter(
    io: Io,
    settings: TelemetrySettings,
    figures: Callable[[], Awaitable[MetricsSnapshot]],
    cluster: str,
    instance: str,
) -> Exporter:
    """What sends, when it is started.

    :param instance: tells the broker from others of its cluster
    """
    # Whoever sends nothing has no protobuf of OpenTelemetry's.
    from magnetar.telemetry.encoding import RequestEncoder
    from magnetar.telemetry.exporter import Exporter

    resource = {
        "service.name": _SERVICE_NAME,
        "service.version": __version__,
        "service.instance.id": instance,
        "pulsar.cluster": cluster,
        **settings.resource,
    }
    if settings.service_name:
        resource["service.name"] = settings.service_name
    return Exporter(io, settings, RequestEncoder(resource, __version__), figures)


def warn_without_telemetry(environment: Mapping[str, str]) -> None:
    """Of a process that sends none."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "false":
        log.warning(
            "OTEL_SDK_DISABLED=false has no effect: only brokers send telemetry; scrape /metrics instead"
        )
