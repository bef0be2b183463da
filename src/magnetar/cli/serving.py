"""The commands that start servers. ``magnetar standalone`` runs a broker with its storage in one process;
``broker`` runs a broker that uses ZooKeeper and BookKeeper; ``proxy``, ``discovery`` and ``websocket`` run
servers in front of brokers.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from magnetar.server.broker_process import ProcessOptions
    from magnetar.server.proxy_process import ProxyProcessOptions

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

_OVERRIDES = {
    "binary_port": "brokerServicePort",
    "http_port": "webServicePort",
    "bind_address": "bindAddress",
    "advertised_address": "advertisedAddress",
}
_PROXY_OVERRIDES = {
    **_OVERRIDES,
    "binary_port": "servicePort",
    "metadata_store": "metadataStoreUrl",
}
_WEBSOCKET_OVERRIDES = {
    "http_port": "webServicePort",
    "bind_address": "bindAddress",
    "broker_url": "brokerServiceUrl",
}
_LOG_LEVELS = ("debug", "info", "warning", "error")


def add_servers(commands: Commands) -> None:
    """Adds the commands that start servers."""
    _add_standalone(commands)
    _add_broker(commands)
    _add_proxy(commands)
    _add_websocket(commands)


def _add_standalone(commands: Commands) -> None:
    standalone = commands.add_parser(
        "standalone",
        help="run a broker, its storage and its metadata in one process",
        description="Runs a broker, its storage and its metadata in one process, until SIGTERM or SIGINT.",
    )
    standalone.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file: a standalone.conf or broker.conf of Pulsar (none)",
    )
    standalone.add_argument(
        "--data-dir",
        type=_folder,
        metavar="DIR",
        default=Path("data"),
        help="directory for all data (data)",
    )
    _add_common(standalone)


def _add_broker(commands: Commands) -> None:
    broker = commands.add_parser(
        "broker",
        help="run a broker on ZooKeeper and BookKeeper",
        description="Runs a broker of a cluster on Apache ZooKeeper and BookKeeper, until SIGTERM or SIGINT.",
    )
    broker.add_argument(
        *("-c", "--config", "--broker-conf"),
        type=Path,
        metavar="FILE",
        required=True,
        help="configuration file: a broker.conf of Pulsar",
    )
    broker.add_argument(
        "--wait",
        type=_seconds,
        metavar="SECONDS",
        help="maximum time to wait for ZooKeeper and the bookies, in seconds (no limit)",
    )
    _add_common(broker)


def _add_proxy(commands: Commands) -> None:
    proxy = commands.add_parser(
        "proxy",
        help="run a proxy for clients that cannot reach the brokers",
        description="Runs a proxy in front of the brokers of a cluster, until SIGTERM or SIGINT.",
    )
    _add_proxy_options(proxy)
    discovery = commands.add_parser(
        "discovery",
        help="redirect clients to a broker",
        description="Redirects the clients of a cluster to one of its brokers, until SIGTERM or SIGINT.",
    )
    _add_proxy_options(discovery)


def _add_proxy_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("-c", "--config"),
        type=Path,
        metavar="FILE",
        required=True,
        help="configuration file: a proxy.conf of Pulsar",
    )
    parser.add_argument(
        *("-md", "--metadata-store"),
        dest="metadata_store",
        metavar="URL",
        help="metadata store where the brokers are registered: zk:host:port,...",
    )
    parser.add_argument(
        "--wait",
        type=_seconds,
        metavar="SECONDS",
        help="maximum time to wait for ZooKeeper, in seconds (no limit)",
    )
    _add_common(parser)


def _add_websocket(commands: Commands) -> None:
    websocket = commands.add_parser(
        "websocket",
        help="serve Pulsar's WebSocket API in front of brokers",
        description="Serves Pulsar's WebSocket API in front of the brokers of a cluster, until SIGTERM or "
        "SIGINT.",
    )
    websocket.add_argument(
        *("-c", "--config"), type=Path, metavar="FILE", help="configuration file: a websocket.conf of Pulsar"
    )
    websocket.add_argument(
        "--broker-url",
        metavar="URL",
        help="address of the brokers (brokerServiceUrl): pulsar://host:port,host:port",
    )
    websocket.add_argument(
        "--wait",
        type=_seconds,
        metavar="SECONDS",
        help="maximum time to wait for ZooKeeper, in seconds (no limit)",
    )
    _add_listener(websocket)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--binary-port",
        type=_port,
        metavar="N",
        help="port for clients of Pulsar's binary protocol (6650); 0: a free port",
    )
    parser.add_argument(
        "--advertised-address",
        metavar="A",
        help="host name that clients connect to (the address of --bind-address)",
    )
    _add_listener(parser)


def _add_listener(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--http-port", type=_port, metavar="N", help="port for HTTP (8080); 0: a free port")
    parser.add_argument("--bind-address", metavar="A", help="address to listen on (127.0.0.1)")
    parser.add_argument(
        "--accept-unhonoured",
        action="append",
        default=[],
        metavar="KEY",
        help="start although the configuration file sets KEY, which this release does not honour "
        "(repeatable)",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="format of log lines (text)"
    )
    parser.add_argument(
        "--log-level", choices=_LOG_LEVELS, default="info", help="lowest level of log lines to write (info)"
    )


def _folder(text: str) -> Path:
    # Otherwise an unset variable of a script would mean the current folder.
    if not text:
        raise argparse.ArgumentTypeError("the name of the directory is empty; give a path")
    return Path(text)


def _port(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = -1
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; give a whole number from 0 to 65535")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds < 0 or not isfinite(seconds):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds; give a number above 0")
    return seconds


def _run_standalone(parsed: argparse.Namespace) -> int:
    with _no_collections():
        from magnetar.server.standalone import run_standalone

    return run_standalone(_options(parsed, parsed.data_dir))


def _run_broker(parsed: argparse.Namespace) -> int:
    with _no_collections():
        from magnetar.server.cluster_broker import run_broker

    return run_broker(_options(parsed, None), parsed.wait)


@contextmanager
def _no_collections() -> Iterator[None]:
    """A context manager that disables garbage collection, while the modules of a server are imported.

    Imports leave almost no garbage, but collections would take a tenth of the start time.
    """
    gc.disable()
    try:
        yield
    finally:
        # Modules live as long as the process, so later collections need not scan them.
        gc.freeze()
        gc.enable()


def _options(parsed: argparse.Namespace, data_dir: Path | None) -> ProcessOptions:
    from magnetar.server.broker_process import ProcessOptions

    return ProcessOptions(
        data_dir=data_dir,
        config=parsed.config,
        overrides=_given(parsed, _OVERRIDES),
        accept_unhonoured=frozenset(parsed.accept_unhonoured),
        log_format=parsed.log_format,
        log_level=parsed.log_level,
    )


def _run_proxy(parsed: argparse.Namespace) -> int:
    with _no_collections():
        from magnetar.server.proxy_process import run_proxy

    return run_proxy(_proxy_options(parsed))


def _proxy_options(parsed: argparse.Namespace) -> ProxyProcessOptions:
    from magnetar.server.proxy_process import ProxyProcessOptions

    return ProxyProcessOptions(
        **_options_beside(parsed, _PROXY_OVERRIDES), discovery=parsed.command == "discovery"
    )


def _run_websocket(parsed: argparse.Namespace) -> int:
    with _no_collections():
        from magnetar.server.beside import OptionsBeside
        from magnetar.server.websocket_process import run_websockets

    return run_websockets(OptionsBeside(**_options_beside(parsed, _WEBSOCKET_OVERRIDES)))


def _options_beside(parsed: argparse.Namespace, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Returns the values of all fields of ``OptionsBeside``, by name, as the command line gives them.

    :param overrides: Pulsar's setting for each option that overrides a setting
    """
    return {
        "config": parsed.config,
        "overrides": _given(parsed, overrides),
        "accept_unhonoured": frozenset(parsed.accept_unhonoured),
        "wait_seconds": parsed.wait,
        "log_format": parsed.log_format,
        "log_level": parsed.log_level,
    }


def _given(parsed: argparse.Namespace, keys: Mapping[str, str]) -> dict[str, str]:
    """Returns the values of the options that were given, by the names of Pulsar's settings.

    :param keys: the setting for each option
    """
    given = {key: getattr(parsed, option) for option, key in keys.items()}
    return {key: str(value) for key, value in given.items() if value is not None}


SERVERS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "broker": _run_broker,
    "discovery": _run_proxy,
    "proxy": _run_proxy,
    "standalone": _run_standalone,
    "websocket": _run_websocket,
}
"""The function of each command that starts a server."""
