"""Carries out a parsed command line of ``pulsar-client``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from magnetar.cli.client import producing, receiving
from magnetar.cli.cluster_access import AccessRefused, cluster_access, error_text
from magnetar.cli.command_lines import Refused
from magnetar.client import Client, PulsarException
from magnetar.exit_codes import FAILED, INTERRUPTED, SUCCEEDED

_COMMANDS: dict[
    str, tuple[Callable[[argparse.Namespace], object], Callable[[Client, argparse.Namespace, Any], str]]
] = {
    "produce": (producing.prepared, producing.produce),
    "consume": (receiving.prepared, receiving.consume),
    "read": (receiving.prepared, receiving.read),
}


def _warn(sentence: str) -> None:
    sys.stderr.write(f"pulsar-client: warning: {sentence}\n")


def perform(parsed: argparse.Namespace) -> int:
    """Runs the command; returns the exit code: 0 success, 1 failure, 130 interrupted."""
    try:
        access = cluster_access(
            {
                "brokerServiceUrl": parsed.url,
                "authPlugin": parsed.auth_plugin,
                "authParams": parsed.auth_params,
                "tlsTrustCertsFilePath": parsed.tlsTrustCertsFilePath,
                "proxyServiceUrl": parsed.proxy_url,
                "proxyProtocol": parsed.proxy_protocol,
            }
        )
        if access.service_url.startswith(("ws://", "wss://")):
            raise Refused(
                f"{access.service_url}: this command does not support WebSocket; use pulsar:// or "
                "pulsar+ssl://"
            )
        prepare, work = _COMMANDS[parsed.command]
        given = prepare(parsed)
        with Client(
            access.service_url, listener_name=parsed.listener_name, **access.client_options()
        ) as client:
            done = work(client, parsed, given)
            if parsed.command == "produce":
                access.warn_of_deletion(parsed.topic, _warn)
    except (AccessRefused, PulsarException, Refused, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        sys.stderr.write(f"pulsar-client: {error_text(error)}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    sys.stderr.write(f"{done}\n")
    return SUCCEEDED
