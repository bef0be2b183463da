"""``magnetar compact-topic``: compacts a topic, through a running broker or in the data directory of a
stopped broker.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from magnetar.exit_codes import FAILED, SUCCEEDED

_PAUSE_SECONDS = 0.5


def add_compact_topic(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "compact-topic",
        help="compact a topic by key",
        description="Compacts a topic by key: through the broker if it is running, otherwise in its data "
        "directory.",
    )
    parser.add_argument("-t", "--topic", required=True, metavar="TOPIC")
    parser.add_argument(
        "-c", "--broker-conf", "--config", type=Path, metavar="FILE", help="configuration file of the broker"
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", default=Path("data"), help="data directory (data)"
    )
    parser.add_argument(
        "--admin-url",
        metavar="URL",
        help="HTTP address of the running broker (derived from webServicePort in the configuration file)",
    )
    parser.add_argument(
        "--auth-plugin",
        metavar="CLASS",
        help="authentication plugin: a Pulsar class name, or token, basic or tls",
    )
    parser.add_argument("--auth-params", metavar="TEXT", help="credentials for the authentication plugin")
    parser.add_argument(
        "--tls-trust-cert-path", metavar="FILE", help="PEM file with the trusted certificate authorities"
    )


def run_compact_topic(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar compact-topic``; returns the exit code: 0 the topic was compacted, 1 it was not."""
    from magnetar.config.settings import ConfigurationError, load
    from magnetar.ledger.embedded.identity import StoreLocked
    from magnetar.ledger.interface import LedgerError
    from magnetar.metadata.interface import MetadataError
    from magnetar.server.compact_topic import NotCompacted, compact_stored
    from magnetar.server.loop_process import reachable_host

    try:
        settings = load(parsed.broker_conf, frozenset(), {}).settings
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return FAILED
    try:
        compact_stored(settings, parsed.data_dir, parsed.topic)
    except StoreLocked:
        host = reachable_host(settings.bind_address)
        return _ask_broker(parsed, f"http://{host}:{settings.web_service_port or 8080}")
    except (NotCompacted, LedgerError, MetadataError, OSError) as error:
        sys.stderr.write(f"magnetar: cannot compact the topic: {error}\n")
        return FAILED
    sys.stdout.write(f"{parsed.topic} was compacted\n")
    return SUCCEEDED


def _ask_broker(parsed: argparse.Namespace, known_url: str) -> int:
    from magnetar.admin_client import AdminClient, AdminError
    from magnetar.cli.cluster_access import AccessRefused, cluster_access
    from magnetar.naming.name_rules import InvalidName

    flags = {
        "webServiceUrl": parsed.admin_url or known_url,
        "authPlugin": parsed.auth_plugin,
        "authParams": parsed.auth_params,
        "tlsTrustCertsFilePath": parsed.tls_trust_cert_path,
    }
    try:
        access = cluster_access(flags)
        admin = AdminClient(access.admin_url, authentication=access.authentication, tls=access.tls)
        admin.compact_topic(parsed.topic)
        parts = admin.partitions(parsed.topic)
        names = [f"{parsed.topic}-partition-{index}" for index in range(parts)] or [parsed.topic]
        for name in names:
            while (told := admin.compaction_status(name))["status"] == "RUNNING":
                time.sleep(_PAUSE_SECONDS)
            if told["status"] != "SUCCESS":
                sys.stderr.write(f"magnetar: cannot compact {name}: {told['lastError']}\n")
                return FAILED
    except (AccessRefused, AdminError, InvalidName, OSError) as error:
        sys.stderr.write(f"magnetar: cannot compact the topic: {error}\n")
        return FAILED
    sys.stdout.write(f"{parsed.topic} was compacted\n")
    return SUCCEEDED
