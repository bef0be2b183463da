"""Offloaded ledgers: the formats and stores of Pulsar's tiered storage.

Calls block on the network or on files, so they must run on a worker, never on the loop. The package does not
know managed ledgers, policies or metadata: the caller records which ledgers are offloaded, and decides
when an offloaded ledger may be deleted.
"""

from __future__ import annotations

from collections.abc import Mapping

from magnetar.offload.cache import PieceCache
from magnetar.offload.interface import OffloadDriver
from magnetar.offload.settings import AWS_S3, checked_driver, file_settings, s3_settings

_SAME_OBJECTS = "S3"
"""The name of Pulsar's driver for other S3-compatible stores. Metadata of ledgers may contain this name; the
objects of such ledgers have the same format as those of aws-s3.
"""


def driver_for(name: str, values: Mapping[str, str], cache: PieceCache) -> OffloadDriver:
    """Returns the driver that offloads ledgers, and reads ledgers that it offloaded.

    :param name: the value of ``managedLedgerOffloadDriver``; upper and lower case do not matter
    :param values: the driver's settings by Pulsar's names; missing and empty settings have their defaults
    :raises OffloadMisconfigured: the driver is not supported or not installed, or a setting is invalid
    """
    return driver_of(name, {}, values, cache)


def driver_of(
    name: str, metadata: Mapping[str, str], values: Mapping[str, str], cache: PieceCache
) -> OffloadDriver:
    """Returns a driver that reads and deletes a ledger in the store to which it was offloaded.

    :param name: the name of the driver, as recorded with the ledger
    :param metadata: the driver's metadata, as recorded with the ledger: the location of its objects
    :param values: the current settings by Pulsar's names: credentials, and locations that the metadata lacks
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
    """Returns settings in which the location recorded in a ledger's metadata replaces the present location.
    If the metadata has a region without an endpoint, the region is one of Amazon's, and the present endpoint
    does not apply.
    """
    found = dict(values)
    if metadata.get("bucket"):
        found |= _named("Bucket", metadata["bucket"])
    if metadata.get("region") or metadata.get("serviceEndpoint"):
        found |= _named("Region", metadata.get("region", ""))
        found |= _named("ServiceEndpoint", metadata.get("serviceEndpoint", ""))
    return found


def _named(name: str, value: str) -> Mapping[str, str]:
    """Returns two settings with the same value: Pulsar has two names for this setting."""
    return {f"s3ManagedLedgerOffload{name}": value, f"managedLedgerOffload{name}": value}
