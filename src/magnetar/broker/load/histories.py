"""Histories of bundles and averages of brokers in the metadata store, from which a new leader starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from magnetar.broker.load.averages import BROKERS, BundleHistory, broker_path, bundle_path
from magnetar.broker.load.cluster_load import ClusterLoad
from magnetar.broker.load.quotas import Quotas
from magnetar.broker.policies.records import encode, read
from magnetar.errors import MetadataFailure
from magnetar.metadata.interface import MetadataStore, NodeMissing


class Histories:
    def __init__(self, metadata: MetadataStore, quotas: Quotas) -> None:
        self._metadata = metadata
        self._quotas = quotas
        self._written: dict[str, BundleHistory] = {}

    async def of(self, bundles: Iterable[str]) -> Mapping[str, BundleHistory]:
        """Returns histories of bundles, or their quotas; bundles without either are missing.

        :raises MetadataError: the store does not answer now
        """
        found: dict[str, BundleHistory] = {}
        for bundle in bundles:
            try:
                record = await read(self._metadata, bundle_path(bundle))
                if record is not None:
                    found[bundle] = BundleHistory.from_json(record)
                    continue
                quota = await self._quotas.set_for(bundle)
            except MetadataFailure:
                # A history that cannot be parsed counts as missing.
                continue
            if quota is not None:
                found[bundle] = BundleHistory.by_quota(quota.expected())
        return found

    async def write(self, load: ClusterLoad) -> None:
        """Writes what has changed since the last time.

        :raises MetadataError: the store refused; the rest is written the next time
        """
        for bundle, history in list(load.bundles.items()):
            if self._written.get(bundle) != history:
                await self._metadata.put(bundle_path(bundle), encode(history.to_json()))
                self._written[bundle] = history
        for broker_id, broker in list(load.brokers.items()):
            await self._metadata.put(broker_path(broker_id), encode(broker.averages.to_json()))

    async def brokers_but(self, known: Collection[str]) -> Collection[str]:
        """Returns the brokers with stored averages that are not in ``known``.

        :raises MetadataError: the store refused
        """
        return set(await self._metadata.children(BROKERS)) - set(known)

    async def forget(self, bundles: Collection[str], broker_ids: Collection[str] = ()) -> None:
        """Deletes the histories and averages of these.

        :raises MetadataError: the store refused
        """
        for path in (*map(bundle_path, bundles), *map(broker_path, broker_ids)):
            try:
                await self._metadata.delete(path)
            except NodeMissing:
                continue
        for bundle in bundles:
            self._written.pop(bundle, None)
