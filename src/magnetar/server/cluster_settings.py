"""Derives the addresses of the metadata stores and the BookKeeper settings from the settings of a cluster."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple

from magnetar.broker.settings import BrokerSettings
from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import SettingsContradict
from magnetar.ledger.bookkeeper.authentication import AuthProvider
from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import BookiesSettings
from magnetar.ledger.bookkeeper.digests import DigestType
from magnetar.ledger.bookkeeper.placement import DiskSpaceSettings
from magnetar.ledger.bookkeeper.rack_placement import PlacementSettings
from magnetar.ledger.bookkeeper.reader import ReadSettings
from magnetar.ledger.bookkeeper.store import BookKeeperSettings
from magnetar.ledger.bookkeeper.wire import VERSION_2, VERSION_3
from magnetar.ledger.interface import Groups, Quorums
from magnetar.metadata.zookeeper.address import AddressRefused, EnsembleAddress, ensemble_address
from magnetar.protocol.frames import max_frame_size
from magnetar.server.cluster_setup import LEDGERS, bookkeeper_of

_OTHER_STORE = re.compile(r"(?!zk:|zookeeper:)[a-z][-a-z0-9+.]*:(?![0-9])")
"""Matches the address of another kind of store, such as ``etcd:``, but not a host with a port."""


class MetadataPlaces(NamedTuple):
    local: EnsembleAddress
    configuration: EnsembleAddress
    bookkeeper: EnsembleAddress
    """The address of the ZooKeeper ensemble with BookKeeper's metadata, without a path."""
    ledgers: str
    """The path of the ledgers' metadata in the ensemble :attr:`bookkeeper`."""

    @property
    def own_bookkeeper(self) -> bool:
        """Whether the metadata of the ledgers is in the local store."""
        return self.bookkeeper.hosts == self.local.hosts and self.ledgers == self.local.chroot + LEDGERS


def metadata_places(settings: ClusterSettings) -> MetadataPlaces:
    """Returns the addresses of the metadata stores.

    :raises SettingsContradict: a setting is missing, or is not a ZooKeeper address
    """
    if not settings.local_store:
        raise SettingsContradict("metadataStoreUrl is not set; set it to the ZooKeeper of the cluster")
    local = _address("metadataStoreUrl", settings.local_store)
    shared = settings.configuration_store
    configuration = _address("configurationMetadataStoreUrl", shared) if shared else local
    uri = settings.bookkeeper_metadata_service_uri
    try:
        bookkeeper = bookkeeper_of(uri) if uri else EnsembleAddress(local.hosts, local.chroot + LEDGERS)
    except ValueError as error:
        raise SettingsContradict(f"bookkeeperMetadataServiceUri: {error}") from error
    return MetadataPlaces(
        local, configuration, EnsembleAddress(bookkeeper.hosts), bookkeeper.chroot or LEDGERS
    )


def quorums(settings: ClusterSettings) -> Quorums:
    return Quorums(
        settings.managed_ledger_default_ensemble_size,
        settings.managed_ledger_default_write_quorum,
        settings.managed_ledger_default_ack_quorum,
    )


def ledger_settings(
    settings: ClusterSettings, root: str, max_message_size: int, auth_provider: AuthProvider | None = None
) -> BookKeeperSettings:
    """Returns the settings of the BookKeeper client.

    :param root: path above the metadata of ledgers
    :param max_message_size: the broker's limit in bytes, which, as in Pulsar, also limits requests to bookies
    :param auth_provider: authentication towards bookies; None: no authentication
    """
    return BookKeeperSettings(
        root,
        DigestType(settings.managed_ledger_digest_type),
        settings.managed_ledger_password.encode(),
        BookiesSettings(
            BookieSettings(
                float(settings.bookkeeper_client_timeout_in_seconds),
                wire=VERSION_2 if settings.bookkeeper_use_v2_wire_protocol else VERSION_3,
                max_frame_bytes=max_frame_size(max_message_size),
                auth_provider=auth_provider,
            ),
            settings.bookkeeper_client_health_check_enabled,
            settings.bookkeeper_client_health_check_error_threshold_per_interval,
            settings.bookkeeper_client_health_check_interval_seconds,
            settings.bookkeeper_client_health_check_quarantine_time_in_seconds,
            settings.bookkeeper_client_quarantine_ratio,
        ),
        ReadSettings(
            settings.bookkeeper_client_speculative_read_timeout_in_millis / 1000,
            settings.bookkeeper_enable_sticky_reads,
        ),
        placement=_placement(settings),
        disk_space=_disk_space(settings),
        explicit_lac_seconds=settings.bookkeeper_explicit_lac_interval_in_mills / 1000,
    )


def _disk_space(settings: ClusterSettings) -> DiskSpaceSettings | None:
    if not settings.bookkeeper_disk_weight_based_placement_enabled:
        return None
    return DiskSpaceSettings(
        settings.bookkeeper_client_get_bookie_info_interval_seconds,
        settings.bookkeeper_client_get_bookie_info_retry_interval_seconds,
    )


def _placement(settings: ClusterSettings) -> PlacementSettings:
    first = _names(settings.bookkeeper_client_isolation_groups)
    further = _names(settings.bookkeeper_client_secondary_isolation_groups)
    groups = Groups(first, further) if first else None
    regions = settings.bookkeeper_client_regionaware_policy_enabled
    racks = settings.bookkeeper_client_rackaware_policy_enabled
    if groups is None and not regions and not racks:
        return PlacementSettings(min_racks=1, racks=False)
    return PlacementSettings(
        regions,
        settings.bookkeeper_client_min_num_racks_per_write_quorum,
        settings.bookkeeper_client_enforce_min_num_racks_per_write_quorum,
        groups,
    )


def _names(text: str) -> frozenset[str]:
    return frozenset(filter(None, map(str.strip, text.split(","))))


def in_cluster(known: BrokerSettings, settings: ClusterSettings) -> BrokerSettings:
    """Returns the broker's settings, adapted to ledgers in BookKeeper."""
    copies, policies = quorums(settings), known.policies
    persistence = replace(
        policies.persistence,
        ensemble=copies.ensemble,
        write_quorum=copies.write,
        ack_quorum=copies.ack,
    )
    return replace(known, policies=replace(policies, persistence=persistence), one_copy=False, alone=False)


def _address(name: str, text: str) -> EnsembleAddress:
    if _OTHER_STORE.match(text):
        raise SettingsContradict(
            f"{name} must be an address of ZooKeeper (zk:host:port,host:port/path), not {text!r}"
        )
    try:
        return ensemble_address(text)
    except AddressRefused as error:
        raise SettingsContradict(f"{name}: {error}") from error
