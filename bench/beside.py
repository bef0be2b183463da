"""Measures Magnetar and Apache Pulsar, one after the other."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.conditions import conditions
from bench.peer_jars import add_jars, chosen_jars
from bench.servers import ApachePulsar, Magnetar, Server

Figures = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of :func:`side_by_side`."""
    parser.add_argument("--servers", default="magnetar,pulsar")
    add_jars(parser)


def side_by_side(
    options: argparse.Namespace, measure: Callable[[Server], Figures], settings: dict[str, str] | None = None
) -> Figures:
    """Returns the machine, and the figures of each server, by its name.

    :param settings: of Apache Pulsar
    :raises Void: a run is void
    """
    found: Figures = {
        **conditions(),
    }
    for name in options.servers.split(","):
        with tempfile.TemporaryDirectory(prefix="beside-") as folder:
            server: Server
            if name == "magnetar":
                server = Magnetar("magnetar", "Magnetar", "magnetar", Path(folder))
            else:
                jars = chosen_jars(options)
                server = ApachePulsar(
                    "pulsar", "Apache Pulsar", "pulsar", Path(folder), jars=jars, settings=settings or {}
                )
            server.start()
            try:
                found[name] = measure(server)
            finally:
                server.stop()
    return found
