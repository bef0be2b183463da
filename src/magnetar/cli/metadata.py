"""``magnetar initialize-cluster-metadata``, ``initialize-transaction-coordinator-metadata`` and
``recover-metadata``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.exit_codes import FAILED, SUCCEEDED

if TYPE_CHECKING:
    from magnetar.metadata.zookeeper.session import SessionSettings
    from magnetar.server.cluster_access import MetadataAccess

_URLS = {
    "web_service_url": "serviceUrl",
    "web_service_url_tls": "serviceUrlTls",
    "broker_service_url": "brokerServiceUrl",
    "broker_service_url_tls": "brokerServiceUrlTls",
    "proxy_url": "proxyServiceUrl",
    "proxy_protocol": "proxyProtocol",
    "auth_plugin": "authenticationPlugin",
    "auth_parameters": "authenticationParameters",
}
"""Maps options to the keys of their values in the metadata of a cluster."""


def add_initialize_cluster(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "initialize-cluster-metadata",
        help="initialize the metadata of a new cluster",
        description="Creates the metadata of a cluster in ZooKeeper. Existing metadata is kept; the command "
        "fails if it differs.",
    )
    parser.add_argument("-c", "--cluster", required=True, metavar="NAME", help="name of the cluster")
    parser.add_argument(
        *("-md", "--metadata-store", "-zk", "--zookeeper"),
        dest="metadata_store",
        required=True,
        metavar="URL",
        help="metadata store of the cluster: zk:host:port,host:port/path",
    )
    parser.add_argument(
        *("-cms", "--configuration-metadata-store", "-cs", "--configuration-store"),
        dest="configuration_metadata_store",
        required=True,
        metavar="URL",
        help="configuration store that clusters share; for a single cluster, the URL of --metadata-store",
    )
    parser.add_argument(
        *("-mscp", "--metadata-store-config-path"),
        default="",
        metavar="FILE",
        help="properties file in the format of ZooKeeper's Java client, with the TLS settings for the "
        "metadata store",
    )
    parser.add_argument(
        *("-cmscp", "--configuration-metadata-store-config-path"),
        default="",
        metavar="FILE",
        help="properties file in the format of ZooKeeper's Java client, with the TLS settings for the "
        "configuration store (default: those for the metadata store)",
    )
    parser.add_argument(
        "-uw",
        "--web-service-url",
        required=True,
        metavar="URL",
        help="HTTP address of the brokers: http://host:8080",
    )
    parser.add_argument(
        "-tw", "--web-service-url-tls", metavar="URL", help="HTTPS address of the brokers: https://host:8443"
    )
    parser.add_argument(
        "-ub",
        "--broker-service-url",
        metavar="URL",
        help="address of the brokers for clients: pulsar://host:6650",
    )
    parser.add_argument(
        "-tb",
        "--broker-service-url-tls",
        metavar="URL",
        help="TLS address of the brokers for clients: pulsar+ssl://host:6651",
    )
    parser.add_argument(
        "-te",
        "--tls-enable",
        action="store_true",
        help="make brokers of other clusters connect to this one with TLS",
    )
    parser.add_argument(
        "-pu",
        "--proxy-url",
        metavar="URL",
        help="URL of the proxy through which other clusters connect to this one",
    )
    parser.add_argument("-pp", "--proxy-protocol", choices=("SNI",), help="protocol of the proxy")
    parser.add_argument(
        "--auth-plugin",
        metavar="CLASS",
        help="authentication plugin with which other clusters connect to this one",
    )
    parser.add_argument("--auth-parameters", metavar="TEXT", help="parameters of the authentication plugin")
    parser.add_argument(
        "-bn",
        "--default-namespace-bundle-number",
        type=_number,
        default=0,
        metavar="N",
        help="number of bundles of the default namespace; 0, the default, means 16",
    )
    for option in ("stream-storage-containers", "transaction-coordinators"):
        parser.add_argument(
            f"--initial-num-{option}",
            type=_number,
            default=16,
            metavar="N",
            help=f"number of {option.replace('-', ' ')} (16)",
        )
    parser.add_argument(
        "--existing-bk-metadata-service-uri",
        metavar="URI",
        help="metadata service URI of existing bookies that this cluster shares with other systems",
    )
    _add_session(parser)


def add_initialize_coordinators(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "initialize-transaction-coordinator-metadata",
        help="add transaction coordinators to the metadata of a cluster",
        description="Creates the metadata of transaction coordinators in ZooKeeper, for a cluster that was "
        "initialized without them.",
    )
    parser.add_argument("-c", "--cluster", required=True, metavar="NAME", help="name of the cluster")
    parser.add_argument(
        *("-cs", "--configuration-store"),
        dest="configuration_store",
        required=True,
        metavar="URL",
        help="configuration store that clusters share: zk:host:port,host:port/path",
    )
    parser.add_argument(
        *("-cmscp", "--configuration-metadata-store-config-path"),
        default="",
        metavar="FILE",
        help="properties file in the format of ZooKeeper's Java client, with the TLS settings for the "
        "configuration store",
    )
    parser.add_argument(
        "--initial-num-transaction-coordinators",
        type=_number,
        default=16,
        metavar="N",
        help="number of transaction coordinators (16)",
    )
    _add_session(parser)


def _add_session(parser: argparse.ArgumentParser) -> None:
    """Adds the options for a session with ZooKeeper; see :func:`_session`."""
    parser.add_argument(
        "--zookeeper-password",
        default="",
        metavar="URL",
        help="URL, file:///PATH, of a file with USER:PASSWORD for ZooKeeper's digest authentication",
    )
    parser.add_argument(
        "--zookeeper-session-timeout-ms",
        type=_number,
        default=30000,
        metavar="N",
        help="timeout of the session with ZooKeeper in ms (30000)",
    )


def run_initialize_coordinators(parsed: argparse.Namespace) -> int:
    """Runs ``initialize-transaction-coordinator-metadata``; returns the exit code: 0 the metadata now exists,
    1 it does not.
    """
    from magnetar.config.settings import SettingsContradict
    from magnetar.metadata.interface import MetadataError
    from magnetar.metadata.zookeeper.address import ensemble_address
    from magnetar.server.cluster_access import MetadataAccess, zookeeper_access
    from magnetar.server.cluster_setup import SetupContradicts
    from magnetar.server.cluster_stores import set_up_coordinators_of

    count = parsed.initial_num_transaction_coordinators
    try:
        path = parsed.configuration_metadata_store_config_path
        access = zookeeper_access("--configuration-metadata-store-config-path", path, _session(parsed))
        set_up_coordinators_of(
            ensemble_address(parsed.configuration_store),
            parsed.cluster,
            count,
            MetadataAccess(access, access),
        )
    except (SettingsContradict, SetupContradicts, MetadataError, ValueError, OSError) as error:
        sys.stderr.write(f"magnetar: cannot initialize the transaction coordinators: {error}\n")
        return FAILED
    sys.stdout.write(f"Cluster {parsed.cluster} has {count} transaction coordinators\n")
    return SUCCEEDED


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number; give a whole number, 0 or more")
    return int(text)


def _session(parsed: argparse.Namespace) -> SessionSettings:
    """Returns the settings of the session with ZooKeeper.

    :raises SettingsContradict: the file with the password cannot be used
    """
    from magnetar.server.cluster_access import session_settings

    return session_settings(
        parsed.zookeeper_session_timeout_ms, parsed.zookeeper_password, "--zookeeper-password"
    )


def _access(parsed: argparse.Namespace) -> MetadataAccess:
    """Returns the settings for access to the metadata.

    :raises SettingsContradict: a file cannot be used
    """
    from magnetar.server.cluster_access import MetadataAccess, zookeeper_access

    session = _session(parsed)
    local = zookeeper_access("--metadata-store-config-path", parsed.metadata_store_config_path, session)
    shared = parsed.configuration_metadata_store_config_path
    option = "--configuration-metadata-store-config-path"
    return MetadataAccess(local, zookeeper_access(option, shared, session) if shared else local)


def run_initialize_cluster(parsed: argparse.Namespace) -> int:
    """Runs ``initialize-cluster-metadata``; returns the exit code: 0 the metadata is initialized, 1 it is
    not.
    """
    from magnetar.metadata.interface import MetadataError
    from magnetar.metadata.zookeeper.address import EnsembleAddress, ensemble_address
    from magnetar.server.cluster_setup import LEDGERS, ClusterSetup, SetupContradicts, bookkeeper_of
    from magnetar.server.cluster_stores import set_up_stores

    setup = ClusterSetup(
        parsed.cluster,
        {key: getattr(parsed, option) or "" for option, key in _URLS.items()},
        parsed.tls_enable,
        parsed.default_namespace_bundle_number or 16,
        parsed.initial_num_transaction_coordinators,
        parsed.initial_num_stream_storage_containers,
    )
    existing = parsed.existing_bk_metadata_service_uri
    try:
        local = ensemble_address(parsed.metadata_store)
        configuration = ensemble_address(parsed.configuration_metadata_store)
        bookkeeper = (
            bookkeeper_of(existing) if existing else EnsembleAddress(local.hosts, local.chroot + LEDGERS)
        )
        set_up_stores(
            local,
            configuration,
            setup,
            bookkeeper,
            own_bookkeeper=not existing,
            access=_access(parsed),
        )
    except (SetupContradicts, MetadataError, ValueError, OSError) as error:
        sys.stderr.write(f"magnetar: cannot initialize the cluster: {error}\n")
        return FAILED
    sys.stdout.write(f"The metadata of cluster {parsed.cluster} is initialized\n")
    return SUCCEEDED


def add_recover_metadata(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "recover-metadata",
        help="rebuild lost metadata from the ledgers",
        description="Rebuilds the metadata of a standalone broker from its ledgers, if the metadata is lost, "
        "damaged or older than the ledgers. The broker must be stopped. The old files are kept.",
    )
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", default=Path("data"), help="data directory (%(default)s)"
    )
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration file of the broker")
    parser.add_argument("--check", action="store_true", help="report what would be rebuilt; change nothing")


def run_recover_metadata(parsed: argparse.Namespace) -> int:
    """Runs ``recover-metadata``; returns the exit code: 0 the metadata was rebuilt, 1 it was not."""
    from magnetar.config.settings import ConfigurationError, load
    from magnetar.ledger.interface import LedgerError
    from magnetar.managed_ledger.errors import ManagedLedgerError
    from magnetar.metadata.interface import MetadataError
    from magnetar.server.logs import configure_logging
    from magnetar.server.metadata_recovery import NotRecovered, recover_metadata

    configure_logging("text", "warning")
    try:
        settings = load(parsed.config, frozenset(), {}).settings
    except ConfigurationError as error:
        for problem in error.problems:
            sys.stderr.write(f"magnetar: {problem}\n")
        return FAILED

    def tell(sentence: str) -> None:
        print(sentence, flush=True)

    try:
        recover_metadata(settings, parsed.data_dir, tell, check=parsed.check)
    except (NotRecovered, LedgerError, ManagedLedgerError, MetadataError, OSError) as error:
        sys.stderr.write(f"magnetar: cannot recover the metadata: {error}\n")
        return FAILED
    return SUCCEEDED
