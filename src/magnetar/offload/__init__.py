"""Ledgers in other storage: the formats and stores of Pulsar's tiered storage.

Calls block on the network or on files: they are made on a worker, never in the loop. Nothing here knows
managed ledgers, policies or metadata: the caller records what is offloaded, and when it may be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.offload.cache import PieceCache
from magnetar.offload.interface import OffloadDriver
from magnetar.offload.settings import AWS_S3, checked_driver, file_settings, s3_settings

_SAME_OBJECTS = "S3"
"""Pulsar's driver for stores other than Amazon's. Records name it, and its objects are those of aws-s3."""


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
    if metadata and name.lower() == _SAME_OBJECTS.lower():
        name = AWS_S3
    if checked_driver(name) == AWS_S3:
        from magnetar.offload.object_store import S3Driver

        return S3Driver(s3_settings(_located(values, metadata)), cache)
    from magnetar.offload.file_store import file_driver_of

    return file_driver_of(file_settings(values), metadata, cache)


def _located(values: Mapping[str, str], metadata: Mapping[str, str]) -> Mapping[str, str]:
    """Returns settings with the place that the metadata of a ledger in an object store name.

    A region without an endpoint is a place of Amazon's, whatever endpoint the settings have now.
    """
    found = dict(values)
    if metadata.get("bucket"):
        found |= _named("Bucket", metadata["bucket"])
    if metadata.get("region") or metadata.get("serviceEndpoint"):
        found |= _named("Region", metadata.get("region", ""))
        found |= _named("ServiceEndpoint", metadata.get("serviceEndpoint", ""))
    return found


def _named(name: str, value: str) -> Mapping[str, str]:
    """Returns a setting under both of Pulsar's names."""
    return {f"s3ManagedLedgerOffload{name}": value, f"managedLedgerOffload{name}": value}
