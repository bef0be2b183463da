"""Runs the processes that accompany brokers (proxy, WebSocket server), from their command-line options to
their exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol, TypeVar

from magnetar.config.reading import ConfigurationError, SettingsContradict
from magnetar.exit_codes import FAILED
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MetadataError
from magnetar.server.logs import LogFormat, configure_logging
from magnetar.server.loop_process import (
    PortTaken,
    Served,
    new_loop,
    prepare_process,
    serve_until_signal,
)
from magnetar.server.telemetry import warn_without_telemetry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class OptionsBeside:
    """The options on the command line."""

    config: Path | None = None
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Settings from the command line, by Pulsar's names."""
    accept_unhonoured: frozenset[str] = frozenset()
    wait_seconds: float | None = None
    """Maximum time to wait for ZooKeeper at the start, in seconds; None: no limit."""
    log_format: LogFormat = "text"
    log_level: str = "info"


class Loaded(Protocol):
    """A loaded configuration."""

    @property
    def warnings(self) -> tuple[str, ...]: ...


L = TypeVar("L", bound=Loaded)
S = TypeVar("S", bound=Served)


def run_beside(
    options: OptionsBeside,
    load: Callable[[Path | None, frozenset[str], Mapping[str, str]], L],
    start: Callable[[L, asyncio.AbstractEventLoop], Coroutine[object, object, S]],
    say: Callable[[L, S], None],
    not_served: str,
) -> int:
    """Serves until SIGTERM or SIGINT, and returns the exit code. A second signal ends the process
    immediately.

    :param load: loads the configuration, given its file, the settings that may be unsupported, and
        the settings from the command line
    :param start: starts the servers with the loaded configuration
    :param say: announces that the process is serving
    :param not_served: the beginning of the error message if the process cannot start
    """
    try:
        loaded = load(options.config, options.accept_unhonoured, options.overrides)
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return FAILED
    configure_logging(options.log_format, options.log_level)
    for warning in loaded.warnings:
        log.warning(warning)
    warn_without_telemetry(os.environ)
    prepare_process()
    loop = new_loop()
    try:
        return loop.run_until_complete(
            serve_until_signal(loop, start(loaded, loop), lambda served: say(loaded, served))
        )
    except (OSError, MetadataError, SettingsContradict) as error:
        reason = error.strerror if isinstance(error, OSError) and not isinstance(error, PortTaken) else None
        sys.stderr.write(f"magnetar: {not_served}: {reason or error}\n")
        return FAILED
    finally:
        loop.close()
