"""Lists the objects in the tiered storage of a namespace, and compares them with the ledgers in the topics'
metadata: Pulsar's ``scanOffloadedLedgers``. Nothing is deleted."""

from __future__ import annotations

import json
from collections import Counter

from magnetar.broker.policies.offload import offload_policy
from magnetar.broker.service import BrokerService
from magnetar.errors import NotSupported, PersistenceFailure, PreconditionFailed
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.records import ROOT, decode_managed_ledger
from magnetar.managed_ledger.settings import OffloadStorage
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.offload.interface import FoundObject
from magnetar.offload.settings import AWS_S3, CLUSTER

_OK, _UNKNOWN = "OK", "UNKNOWN"


class OffloadedObjects:
    """A JSON document with all objects of a store; see ``magnetar.http.engine.message.Streamed``.

    The bucket may belong to several clusters. Objects of other clusters have the status ``UNKNOWN``.
    """

    def __init__(self, broker: BrokerService, storage: OffloadStorage, tenant: str | None) -> None:
        self._broker = broker
        self._tenant = tenant
        self._storage = storage
        self._after = ""
        self._began = self._ended = False
        self._next = b""
        self._statuses: Counter[str] = Counter()

    @classmethod
    async def of(cls, broker: BrokerService, namespace: str, *, others: bool) -> OffloadedObjects:
        """Begins to list the store that the namespace's offload policies name.

        :param others: also list objects of other tenants and of other clusters
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: the namespace has no tiered storage
        :raises NotSupported: the driver cannot list its store
        :raises PersistenceFailure: the store cannot be listed
        """
        name = broker.parse_namespace(namespace)
        policies = await broker.policies.of_namespace(name)
        policy = offload_policy(policies.offload)
        if policy is None:
            raise PreconditionFailed(
                "The namespace has no tiered storage: set managedLedgerOffloadDriver, or its offload policies"
            )
        if policy.storage.driver.lower() != AWS_S3:
            raise NotSupported(
                f"The driver {policy.storage.driver} cannot list its objects: list the files in its folder"
            )
        found = cls(broker, policy.storage, None if others else name.tenant)
        found._next = await found._page()
        return found

    async def next(self) -> bytes:
        """Returns the next bytes; empty at the end.

        :raises PersistenceFailure: the store cannot be listed
        """
        piece, self._next = self._next, b""
        return piece or await self._page()

    def close(self) -> None:
        self._ended = True

    async def _page(self) -> bytes:
        if self._ended:
            return b""
        try:
            found, self._after = await self._broker.managed_ledgers.tiered().listed(
                self._storage, self._after
            )
        except LedgerError as error:
            raise PersistenceFailure(str(error)) from error
        pieces: list[str] = []
        for each in found:
            if self._tenant is not None and self._tenant_of(each) != self._tenant:
                continue
            pieces.append("," if self._began else '{"objects":[')
            self._began = True
            pieces.append(json.dumps(await self._told(each), separators=(",", ":")))
        if not self._after:
            self._ended = True
            total, unknown = self._statuses.total(), self._statuses[_UNKNOWN]
            totals = {"total": total, "errors": total - unknown - self._statuses[_OK], "unknown": unknown}
            pieces.append(("" if self._began else '{"objects":[') + "]," + json.dumps(totals)[1:])
        # An empty piece would be the end.
        return "".join(pieces).encode() or b" "

    def _tenant_of(self, found: FoundObject) -> str | None:
        """Returns the tenant of an object of this cluster; None if the object belongs to another cluster or
        its tenant is unknown."""
        if found.metadata.get(CLUSTER.lower()) != self._broker.settings.cluster:
            return None
        return found.metadata.get("managedledgername", "").partition("/")[0]

    async def _told(self, found: FoundObject) -> dict[str, object]:
        told: dict[str, object] = {
            "ledger": found.ledger_id,
            "name": found.name,
            "uri": found.uri,
            "uuid": found.uuid,
            "size": found.size,
            "lastModified": found.modified_ms,
            "userMetadata": dict(found.metadata),
        }
        name = found.metadata.get("managedledgername")
        status = _UNKNOWN
        if name is not None and found.metadata.get(CLUSTER.lower()) == self._broker.settings.cluster:
            told["managedLedgerName"] = name
            status = await self._compare(found, name, told)
        self._statuses[status] += 1
        return {**told, "status": status}

    async def _compare(self, found: FoundObject, managed_ledger: str, told: dict[str, object]) -> str:
        """Returns the status of an object of this cluster, and adds fields from its ledger's metadata to
        ``told``."""
        try:
            TopicName.from_path(managed_ledger)
        except InvalidName:
            return "NOT-FOUND"
        node = await self._broker.metadata.get(f"{ROOT}/{managed_ledger}")
        if node is None or not node.value:
            return "NOT-FOUND"
        ledgers = decode_managed_ledger(node.value, node.path).ledgers
        ledger = next((each for each in ledgers if each.ledger_id == found.ledger_id), None)
        if ledger is None:
            return "NOT-FOUND"
        offload = ledger.offload
        offloaded = offload is not None and offload.complete
        told |= {"numEntries": ledger.entries, "offloaded": offloaded}
        if offload is None or not offloaded:
            return "NOT-OFFLOADED"
        return _OK if str(offload.uuid) == found.uuid else "BAD-UUID"
