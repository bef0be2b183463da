"""Resource quotas of bundles, set by operators: ``/loadbalance/resource-quota``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from magnetar.broker.load.reports import BundleStats, number
from magnetar.broker.policies.records import encode, read
from magnetar.errors import InvalidRequest
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.interface import MetadataStore, NodeMissing

_DEFAULT = "/loadbalance/resource-quota/default"
_BUNDLES = "/loadbalance/resource-quota"
_FIELDS = ("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory")


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """Rates per second, bandwidth in bytes per second, memory in MiB."""

    rate_in: float = 40.0
    rate_out: float = 120.0
    bandwidth_in: float = 100_000.0
    bandwidth_out: float = 300_000.0
    memory: float = 80.0
    dynamic: bool = True
    """Whether load managers may replace it by measured values; none does so at present."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> ResourceQuota:
        rate_in, rate_out, bandwidth_in, bandwidth_out, memory = (
            number(record.get(name)) for name in _FIELDS
        )
        dynamic = record.get("dynamic") is not False
        return cls(rate_in, rate_out, bandwidth_in, bandwidth_out, memory, dynamic)

    @classmethod
    def checked(cls, record: Mapping[str, Any]) -> ResourceQuota:
        """:raises InvalidRequest: a number is missing, invalid or negative"""
        for name in _FIELDS:
            value = record.get(name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise InvalidRequest(f"{name} must be a number of 0 or more")
        return cls.from_json(record)

    def to_json(self) -> dict[str, Any]:
        values = (self.rate_in, self.rate_out, self.bandwidth_in, self.bandwidth_out, self.memory)
        return {**dict(zip(_FIELDS, values, strict=True)), "dynamic": self.dynamic}

    def expected(self) -> BundleStats:
        return BundleStats(self.rate_in, self.bandwidth_in, self.rate_out, self.bandwidth_out)


class Quotas:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata

    async def default(self) -> ResourceQuota:
        """:raises MetadataFailure: the record is not valid JSON"""
        record = await read(self._metadata, _DEFAULT)
        return ResourceQuota() if record is None else ResourceQuota.from_json(record)

    async def set_default(self, quota: ResourceQuota) -> None:
        await self._metadata.put(_DEFAULT, encode(quota.to_json()))

    async def set_for(self, bundle: str) -> ResourceQuota | None:
        """None: the bundle has no quota of its own.

        :raises MetadataFailure: the record is not valid JSON
        """
        record = await read(self._metadata, f"{_BUNDLES}/{bundle}")
        return None if record is None else ResourceQuota.from_json(record)

    async def of(self, bundle: str) -> ResourceQuota:
        return await self.set_for(bundle) or await self.default()

    async def set(self, bundle: str, quota: ResourceQuota) -> None:
        await self._metadata.put(f"{_BUNDLES}/{bundle}", encode(quota.to_json()))

    async def reset(self, bundle: str) -> None:
        """Removes the quota of a bundle, so that the default applies."""
        try:
            await self._metadata.delete(f"{_BUNDLES}/{bundle}")
        except NodeMissing:
            return
