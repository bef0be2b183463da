"""The metadata stores of a cluster: its local store and the configuration store, which can be the same
store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import NamedTuple

from magnetar.config.cluster import ClusterSettings
from magnetar.config.settings import SettingsContradict
from magnetar.io.interfaces import Clock, Io, Loop
from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore
from magnetar.ledger.interface import LedgerError, Quorums
from magnetar.managed_ledger.current_ledger import custom_metadata
from magnetar.managed_ledger.single_entry import SingleEntries
from magnetar.metadata.divided import DividedStore
from magnetar.metadata.interface import MetadataRefused, MetadataStore
from magnetar.metadata.passing_on import MeasuredStore, ResolvingStore
from magnetar.metadata.zookeeper.address import EnsembleAddress
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore
from magnetar.protocol.frames import DEFAULT_MAX_MESSAGE_SIZE, max_frame_size
from magnetar.server.cluster_access import (
    MetadataAccess,
    ZooKeeperAccess,
    bookie_auth_provider,
    bookie_network,
)
from magnetar.server.cluster_settings import MetadataPlaces, ledger_settings
from magnetar.server.cluster_setup import ClusterSetup, set_up_cluster, set_up_coordinators

log = logging.getLogger(__name__)

_PATIENCE_SECONDS = 30.0
_TELL_SECONDS = 10.0
_BOOKIES_ASKED = 10
_SIZE_CHECK = "magnetar/size-check"
"""The purpose that the custom metadata of a size check's ledger states. If a crash prevents the deletion of
the ledger, the ledger remains as an orphaned ledger.
"""
_METADATA_BYTES = 8 * 1024
"""Space for metadata, in bytes: the large entry of the size check is larger than the maximum message size by
this number of bytes. Metadata that clients send can be larger still.
"""
_FIRST_SECONDS = 1.0
"""Time in seconds after which the log first reports that the process waits for a service."""


class Patience:
    """The time limit of a wait for missing servers, and the interval of its log lines."""

    def __init__(self, clock: Clock, loop: Loop, limit_seconds: float | None) -> None:
        """:param limit_seconds: maximum time to wait, in seconds; None: no limit"""
        self.clock, self.loop = clock, loop
        self._deadline = None if limit_seconds is None else clock.monotonic() + limit_seconds
        self._tell_at = 0.0

    @property
    def over(self) -> bool:
        return self._deadline is not None and self.clock.monotonic() >= self._deadline

    def slice(self) -> float:
        """Returns the number of seconds to wait until the next log line is due, or the time limit is
        reached."""
        until = _TELL_SECONDS if self._tell_at else _FIRST_SECONDS
        if self._deadline is None:
            return until
        return min(until, max(0.0, self._deadline - self.clock.monotonic()))

    def tell(self, missing: str) -> None:
        """Logs what is missing, unless the last such log line is too recent."""
        if self.clock.monotonic() >= self._tell_at:
            self._tell_at = self.clock.monotonic() + _TELL_SECONDS
            log.warning("waiting for other services", extra={"missing": missing})


async def open_zookeeper(
    io: Io, address: EnsembleAddress, access: ZooKeeperAccess, patience: Patience
) -> ZooKeeperMetadataStore:
    """Opens a metadata store on ZooKeeper.

    :raises MetadataRefused: ZooKeeper has not answered in time
    """
    outside = access.outside(io)
    while True:
        try:
            return await ZooKeeperMetadataStore.open_store(
                outside, address, access.session, wait_seconds=patience.slice()
            )
        except MetadataRefused as refusal:
            if patience.over:
                raise
            patience.tell(str(refusal))


class ClusterMetadata(NamedTuple):
    """The metadata stores of a cluster; closing ``everything`` closes both stores."""

    zookeeper: ZooKeeperMetadataStore
    """The local store; operations through this object are not measured."""
    local: MeasuredStore
    """The local store with measured operations, for general use."""
    everything: MetadataStore
    """The local store and the configuration store, combined."""
    measured: Sequence[MeasuredStore]


async def open_metadata(
    io: Io,
    local: EnsembleAddress,
    configuration: EnsembleAddress,
    access: MetadataAccess,
    patience: Patience,
) -> ClusterMetadata:
    """Connects to the local and the configuration metadata store.

    :raises MetadataError: one of the stores does not answer in time
    """
    own = await open_zookeeper(io, local, access.local, patience)
    measured = MeasuredStore(own, io.clock, "metadata-store")
    if configuration == local:
        return ClusterMetadata(own, measured, measured, (measured,))
    try:
        other = await open_zookeeper(io, configuration, access.configuration, patience)
    except BaseException:
        await own.close()
        raise
    shared = MeasuredStore(other, io.clock, "configuration-metadata-store")
    return ClusterMetadata(own, measured, DividedStore(measured, shared), (measured, shared))


class BookiesMetadata(NamedTuple):
    """The store with the metadata of bookies and ledgers."""

    metadata: MetadataStore
    root: str
    other: MetadataStore | None
    """A separate store, which the caller closes; None: the metadata is in the cluster's local store."""


async def open_bookies_metadata(
    io: Io, places: MetadataPlaces, opened: ClusterMetadata, access: ZooKeeperAccess, patience: Patience
) -> BookiesMetadata:
    """Opens the metadata store of the bookies.

    :param access: TLS and session settings of the local store, which also apply to a separate store
    :raises MetadataError: a separate store does not answer in time
    """
    if places.own_bookkeeper:
        root = places.ledgers.removeprefix(places.local.chroot)
        return BookiesMetadata(ResolvingStore(opened.local, io.loop), root, None)
    other = ResolvingStore(await open_zookeeper(io, places.bookkeeper, access, patience), io.loop)
    return BookiesMetadata(other, places.ledgers, other)


async def open_ledgers(
    io: Io,
    of_bookies: MetadataStore,
    local: MetadataStore,
    root: str,
    settings: ClusterSettings,
    max_message_size: int,
) -> BookKeeperLedgerStore:
    """Opens the ledgers of BookKeeper.

    :param of_bookies: the store with the metadata of bookies and ledgers, below ``root``
    :param local: the store with the table of racks
    :param max_message_size: maximum message size of the broker, in bytes
    :raises SettingsContradict: the files for TLS towards bookies, or the login at bookies, cannot be used
    """
    network = bookie_network(asyncio.get_running_loop(), settings)
    auth_provider = bookie_auth_provider(settings, io.randomness.token)
    return await BookKeeperLedgerStore.open_store(
        io,
        of_bookies,
        ledger_settings(settings, root, max_message_size, auth_provider),
        network,
        racks_in=local,
    )


async def check_entry_size(loop: Loop, store: BookKeeperLedgerStore, max_message_size: int) -> None:
    """Checks whether bookies accept entries of the maximum message size; does nothing for the default size.

    A bookie closes the connection without an answer if a request is too large. The broker would then retry
    such an entry in one new ledger after another, and store no further message of the topic.

    :param max_message_size: maximum message size of the broker, in bytes
    :raises SettingsContradict: bookies store a small entry, but not an entry of the maximum message size
    :raises LedgerError: the ledger of the check cannot be deleted
    :raises MetadataError: the metadata store does not answer
    """
    if max_message_size <= DEFAULT_MAX_MESSAGE_SIZE:
        return
    # The ack quorum is the ensemble, so that each of these bookies must accept the entry.
    count = min(len(store.bookies.writable), _BOOKIES_ASKED)
    large = bytes(max_message_size + _METADATA_BYTES)
    try:
        writer = await store.create(Quorums(count, count, count), custom_metadata(_SIZE_CHECK))
    except LedgerError as error:
        log.warning("cannot check whether bookies accept large entries", extra={"error": str(error)})
        return
    entries = SingleEntries(loop, writer)
    stored = 0
    try:
        for entry in (b"small", large):
            await entries.append_durably(entry)
            stored += 1
    except LedgerError as error:
        if stored:
            raise SettingsContradict(
                f"maxMessageSize={max_message_size}: the bookies do not accept entries of that size "
                f"({error}). Set nettyMaxFrameSizeBytes of every bookie to "
                f"{max_frame_size(max_message_size)} or more, or maxMessageSize to "
                f"{DEFAULT_MAX_MESSAGE_SIZE}"
            ) from error
        log.warning("cannot check whether bookies accept large entries", extra={"error": str(error)})
    finally:
        await store.delete(writer.ledger_id)


def set_up_coordinators_of(
    configuration: EnsembleAddress, cluster: str, count: int, access: MetadataAccess
) -> None:
    """Sets up the transaction coordinators of a cluster; runs an event loop.

    :param count: number of coordinators, at least 1
    :raises SetupContradicts: there is already another number of coordinators
    :raises MetadataError: the store does not answer, or refused the request
    """

    async def work(io: Io) -> None:
        patience = Patience(io.clock, io.loop, _PATIENCE_SECONDS)
        opened = await open_metadata(io, configuration, configuration, access, patience)
        try:
            await set_up_coordinators(opened.everything, cluster, count)
        finally:
            await opened.everything.close()

    _run(work)


def _run(work: Callable[[Io], Coroutine[object, None, None]]) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work(real_io(loop, ".")))
    finally:
        loop.close()


def set_up_stores(
    local: EnsembleAddress,
    configuration: EnsembleAddress,
    setup: ClusterSetup,
    bookkeeper: EnsembleAddress,
    *,
    own_bookkeeper: bool,
    access: MetadataAccess,
) -> None:
    """Sets up the metadata of a cluster; runs an event loop.

    :raises SetupContradicts: a node already has another value
    :raises MetadataError: a store does not answer, or refused the request
    """

    async def work(io: Io) -> None:
        opened = await open_metadata(
            io, local, configuration, access, Patience(io.clock, io.loop, _PATIENCE_SECONDS)
        )
        metadata = opened.everything
        try:
            await set_up_cluster(
                opened.local, metadata, setup, bookkeeper, io.randomness, own_bookkeeper=own_bookkeeper
            )
        finally:
            await metadata.close()

    _run(work)
