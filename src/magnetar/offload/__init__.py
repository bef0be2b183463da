"""Ledgers in other storage: the formats and stores of Pulsar's tiered storage.

Calls block on the network or on files: they are made on a worker, never in the loop. Nothing here knows
managed ledgers, policies or metadata: the caller records what is offloaded, and when it may be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.offload.cache import PieceCache
from magnetar.offload.interface import OffloadDriver
from magnetar.offload.settings import AWS_S3, checked_driver, file_settings, s3_settings


def driver_for(name: str, values: Mapping[str, str], cache: PieceCache) -> OffloadDriver:
    """Returns the driver that offloads ledgers, and reads what it offloaded.

    :param name: as in ``managedLedgerOffloadDriver``, in any case
    :param values: its settings by Pulsar's names; missing and empty ones have their defaults
    :raises OffloadMisconfigured: the driver is not supported or not installed, or a setting is invalid
    """
    return driver_of(name, {}, values, cache)


def driver_of(
    name: str, metadata: Mapping[str, str], values: Mapping[str, str], cache: PieceCache
) -> OffloadDriver:
    """Returns a driver that reads and deletes a ledger where it was offloaded to.

    :param name: of the driver, as recorded with the ledger
    :param metadata: the driver's metadata, as recorded with the ledger: they say where it is
    :param values: the present settings by Pulsar's names: they say how to log in, and where the metadata say
        nothing
    :raises OffloadMisconfigured: the driver is not supported or not installed, or a setting is invalid
    """
    if checked_driver(name) == AWS_S3:
        from magnetar.offload.object_store import S3Driver

        return S3Driver(s3_settings({**values, **_located(metadata)}), cache)
    from magnetar.offload.file_store import file_driver_of

    return file_driver_of(file_settings(values), metadata, cache)


def _located(metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Returns what the metadata of a ledger in an object store say, by the names of settings."""
    names = {
        "bucket": "s3ManagedLedgerOffloadBucket",
        "region": "s3ManagedLedgerOffloadRegion",
        "serviceEndpoint": "s3ManagedLedgerOffloadServiceEndpoint",
    }
    return {setting: metadata[name] for name, setting in names.items() if metadata.get(name)}
