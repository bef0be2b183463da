"""Creates the telemetry exporter of a broker's process from environment variables."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from magnetar import __version__
from magnetar.broker.stats.figures import MetricsSnapshot
from magnetar.build_info import install_extra
from magnetar.config.reading import SettingsContradict
from magnetar.io.interfaces import Io
from magnetar.io.tls import ClientContext, TlsRefused
from magnetar.telemetry.settings import TelemetrySettings, telemetry_settings

if TYPE_CHECKING:
    from magnetar.telemetry.exporter import Exporter

log = logging.getLogger(__name__)

_SERVICE_NAME = "pulsar-broker"
"""The default service name, which is Pulsar's, because dashboards and alerts use that name."""


def wanted_telemetry(environment: Mapping[str, str]) -> TelemetrySettings | None:
    """Returns the settings of telemetry; None: the broker sends no telemetry.

    :raises SettingsContradict: an environment variable requires an unsupported feature
    """
    settings = telemetry_settings(environment)
    if settings is None:
        return None
    try:
        from magnetar.telemetry import encoding
    except ImportError as error:
        raise SettingsContradict(
            f"OTEL_SDK_DISABLED=false requires OpenTelemetry ({error}): {install_extra('otlp')}"
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
    """Returns the exporter, which is not started yet.

    :param instance: id that distinguishes the broker from other brokers of the cluster
    """
    # Imported late: a broker that sends no telemetry needs no protobuf of OpenTelemetry.
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
    """Logs a warning if the environment enables telemetry; for processes that do not send telemetry."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "false":
        log.warning(
            "OTEL_SDK_DISABLED=false has no effect: only brokers send telemetry; scrape /metrics instead"
        )
