"""Administration of placement: isolation policies, failure domains, anti-affinity groups, bookie racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.admin.namespaces import NamespaceAdmin
from magnetar.broker.load.candidates import GROUP, IsolationPolicy, domains_path, isolation_of, isolation_path
from magnetar.broker.policies.records import Record, change, create, encode, read
from magnetar.broker.service import BrokerService
from magnetar.errors import (
    AlreadyExists,
    BrokerError,
    ClusterNotFound,
    InvalidRequest,
    MetadataFailure,
    NamespaceNotFound,
    NotFound,
    PreconditionFailed,
)
from magnetar.ledger.bookkeeper.racks import TABLE
from magnetar.metadata.interface import NodeMissing, check_path
from magnetar.naming.name_rules import InvalidName

_INVALID_RACK = "Bookie 'rack' parameter is invalid: it must have the form /rack or /region/rack"


class IsolationAdmin:
    def __init__(self, broker: BrokerService, namespaces: NamespaceAdmin, bundles: BundleAdmin) -> None:
        self._broker = broker
        self._metadata = broker.metadata
        self._clusters = broker.policies.clusters
        self._namespaces = namespaces
        self._bundles = bundles

    # Isolation policies

    async def policies(self, cluster: str) -> Mapping[str, object]:
        """Returns the isolation policies of a cluster (``NamespaceIsolationData``) by name.

        :raises ClusterNotFound: no such cluster
        :raises NotFound: the cluster has no policies
        """
        await self._check(cluster)
        found = await read(self._metadata, isolation_path(cluster))
        if not found:
            raise NotFound(f"NamespaceIsolationPolicies for cluster {cluster} does not exist")
        return found

    async def policy(self, cluster: str, name: str) -> Mapping[str, object]:
        """Returns an isolation policy of a cluster.

        :raises ClusterNotFound: no such cluster
        :raises NotFound: no such policy
        """
        found = (await self.policies(cluster)).get(name)
        if not isinstance(found, dict):
            raise NotFound(f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}")
        return found

    async def set_policy(self, cluster: str, name: str, policy: Mapping[str, object]) -> None:
        """Sets a policy, which takes effect immediately: the bundles in its scope are unloaded, and the
        leader places them again.

        :raises ClusterNotFound: no such cluster
        :raises InvalidRequest: the policy is not valid
        :raises BrokerError: the error of the first bundle that was not unloaded; the policy is set, and the
            other bundles are unloaded
        """
        await self._check(cluster)
        checked = IsolationPolicy.from_json(name, policy)
        path = isolation_path(cluster)
        before = (await read(self._metadata, path) or {}).get(name)

        def put(record: Record) -> None:
            record[name] = dict(policy)

        if not await create(self._metadata, path, {name: dict(policy)}):
            await change(self._metadata, path, put, MetadataFailure(f"{path} was deleted in the meantime"))
        if cluster == self._broker.settings.cluster:
            await self._unload(before, checked, policy)

    async def _unload(self, before: object, now: IsolationPolicy, policy: Mapping[str, object]) -> None:
        scope = policy.get("unload_scope") or "changed"
        if scope == "none":
            return
        old = before if isinstance(before, dict) else {}
        # A stored policy that this broker cannot parse has had no effect.
        was = next(iter(isolation_of({now.name: old} if old else {}).policies), None)
        same_brokers = was is not None and (was.primary, was.secondary) == (now.primary, now.secondary)
        failures: list[BrokerError] = []
        for namespace in await self._all_namespaces():
            then = was is not None and was.is_for(namespace)
            concerned = now.is_for(namespace) or then
            if scope == "changed" and same_brokers:
                concerned = now.is_for(namespace) != then
            if concerned:
                try:
                    await self._bundles.unload_all(namespace)
                except NamespaceNotFound:
                    # The namespace was deleted meanwhile, with its bundles.
                    continue
                except BrokerError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    async def _all_namespaces(self) -> Sequence[str]:
        found: list[str] = []
        for tenant in await self._broker.policies.tenants.names():
            found += await self._namespaces.of_tenant(tenant)
        return found

    async def delete_policy(self, cluster: str, name: str) -> None:
        """Deletes a policy if it exists.

        :raises ClusterNotFound: no such cluster
        :raises NotFound: the cluster has no policies at all
        """
        await self.policies(cluster)
        path = isolation_path(cluster)
        missing = NotFound(f"NamespaceIsolationPolicies for cluster {cluster} does not exist")
        await change(self._metadata, path, lambda record: _drop(record, name), missing)

    async def brokers(self, cluster: str) -> Sequence[Mapping[str, object]]:
        """Returns ``BrokerNamespaceIsolationData`` of each live broker: the first isolation policy that names
        the broker, if any. The method also raises the errors of :meth:`policies`."""
        policies = await self._parsed(cluster)
        return [_seen_by(broker_id, policies) for broker_id in self._live()]

    async def broker(self, cluster: str, broker_id: str) -> Mapping[str, object]:
        """Returns ``BrokerNamespaceIsolationData``: the first isolation policy that names the broker.

        The method also raises the errors of :meth:`policies`.

        :raises NotFound: no policy names that broker
        """
        found = _seen_by(broker_id, await self._parsed(cluster))
        if "policyName" not in found:
            raise NotFound(f"Can't find broker {broker_id} in NamespaceIsolationPolicies of {cluster}")
        return found

    async def _parsed(self, cluster: str) -> Sequence[IsolationPolicy]:
        return isolation_of(await self.policies(cluster)).policies

    def _live(self) -> Sequence[str]:
        beside = self._broker.beside
        return [self._broker.settings.broker_id] if beside is None else list(beside.brokers.all)

    async def _check(self, cluster: str) -> None:
        if not await self._clusters.exists(cluster):
            raise ClusterNotFound(f"Cluster {cluster} does not exist.")

    # Failure domains

    async def domains(self, cluster: str) -> Mapping[str, Any]:
        """Returns the failure domains of a cluster (``FailureDomain``) by name.

        :raises PreconditionFailed: no such cluster
        """
        await self._check_412(cluster)
        path = domains_path(cluster)
        names = await self._metadata.children(path)
        return {name: await read(self._metadata, f"{path}/{name}") or {"brokers": []} for name in names}

    async def domain(self, cluster: str, name: str) -> Mapping[str, object]:
        """Returns a failure domain of a cluster.

        :raises NotFound: no such domain
        :raises PreconditionFailed: no such cluster
        """
        await self._check_412(cluster)
        found = None
        with suppress(InvalidName):
            found = await read(self._metadata, _domain_path(cluster, name))
        if found is None:
            raise NotFound(f"Domain {name} for cluster {cluster} does not exist")
        return found

    async def set_domain(self, cluster: str, name: str, brokers: Sequence[str]) -> None:
        """Creates or replaces a failure domain.

        :raises AlreadyExists: a broker is in another domain
        :raises InvalidRequest: the name is not allowed
        :raises PreconditionFailed: no such cluster
        """
        try:
            path = _domain_path(cluster, name)
        except InvalidName as error:
            raise InvalidRequest(str(error)) from error
        for other, record in (await self.domains(cluster)).items():
            taken = set(record.get("brokers") or ()) & set(brokers)
            if other != name and taken:
                raise AlreadyExists(f"Broker {min(taken)} already exists in domain {other}")
        value = encode({"brokers": list(brokers)})
        await self._metadata.put(path, value)

    async def delete_domain(self, cluster: str, name: str) -> None:
        """Deletes a failure domain.

        :raises NotFound: no such domain
        :raises PreconditionFailed: no such cluster
        """
        await self._check_412(cluster)
        try:
            await self._metadata.delete(_domain_path(cluster, name))
        except (InvalidName, NodeMissing) as error:
            raise NotFound(f"Domain-name {name} or cluster {cluster} does not exist") from error

    async def _check_412(self, cluster: str) -> None:
        if not await self._clusters.exists(cluster):
            raise PreconditionFailed(f"Cluster {cluster} does not exist.")

    # Anti-affinity groups

    async def namespaces_of_group(self, cluster: str, group: str, tenant: str) -> Sequence[str]:
        """Returns the namespaces of a tenant in an anti-affinity group; case does not matter in the group's
        name.

        :raises PreconditionFailed: no such cluster, or the group's name is empty
        :raises TenantNotFound: no such tenant
        """
        await self._check_412(cluster)
        if not group.strip():
            raise PreconditionFailed("anti-affinity group can't be empty.")
        found = []
        for namespace in await self._namespaces.of_tenant(tenant):
            policies = await self._namespaces.local_policies(namespace)
            if str(policies.get(GROUP) or "").lower() == group.lower():
                found.append(namespace)
        return found


def _drop(record: Record, name: str) -> None:
    record.pop(name, None)


def _seen_by(broker_id: str, policies: Sequence[IsolationPolicy]) -> dict[str, object]:
    """Returns ``BrokerNamespaceIsolationData`` of a broker, from the first policy that names the broker."""
    for policy in policies:
        primary = policy.is_primary(broker_id)
        if primary or policy.is_secondary(broker_id):
            return {
                "brokerName": broker_id,
                "policyName": policy.name,
                "namespaceRegex": list(policy.namespaces),
                "primary": primary,
            }
    return {"brokerName": broker_id, "primary": False}


class BookieAdmin:
    """Administration of bookie racks: the table that rack-aware placement uses."""

    def __init__(self, broker: BrokerService) -> None:
        self._metadata = broker.metadata

    async def racks(self) -> Mapping[str, Any]:
        """Returns ``BookiesRackConfiguration``, the table of racks.

        :raises MetadataFailure: the table is damaged
        """
        table = await read(self._metadata, TABLE) or {}
        if not all(isinstance(group, dict) for group in table.values()):
            raise MetadataFailure(f"{TABLE}: a group is not an object")
        return table

    async def rack(self, bookie_id: str) -> Mapping[str, object]:
        """Returns ``BookieInfo``, the row of a bookie in the table of racks.

        :raises NotFound: the table does not contain the bookie
        """
        for group in (await self.racks()).values():
            if bookie_id in group:
                found: Mapping[str, object] = group[bookie_id]
                return found
        raise _unknown(bookie_id)

    async def put(self, bookie_id: str, group: str, info: Mapping[str, Any]) -> None:
        """Puts a bookie into a group, and removes it from its previous group.

        :raises PreconditionFailed: the group is empty, or the rack is not a valid path
        """
        if not group:
            raise PreconditionFailed("Bookie 'group' parameters is missing")
        if (info.get("rack") or "").strip("/").count("/") > 1:
            raise PreconditionFailed(_INVALID_RACK)

        def put(record: Record) -> None:
            _drop_bookie(record, bookie_id)
            record.setdefault(group, {})[bookie_id] = dict(info)

        await self.racks()
        if not await create(self._metadata, TABLE, {group: {bookie_id: dict(info)}}):
            await change(self._metadata, TABLE, put, MetadataFailure(f"{TABLE} was deleted in the meantime"))

    async def delete(self, bookie_id: str) -> None:
        """Removes a bookie from the table of racks.

        :raises NotFound: the table does not contain the bookie
        """
        await self.rack(bookie_id)
        await change(
            self._metadata, TABLE, lambda record: _drop_bookie(record, bookie_id), _unknown(bookie_id)
        )


def _drop_bookie(table: Record, bookie_id: str) -> None:
    """Removes a bookie from the table, and groups that have no bookies left."""
    for name, group in list(table.items()):
        group.pop(bookie_id, None)
        if not group:
            del table[name]


def _unknown(bookie_id: str) -> NotFound:
    return NotFound(f"Bookie rack placement configuration not found: {bookie_id}")


def _domain_path(cluster: str, name: str) -> str:
    """Returns the metadata path of a failure domain.

    :raises InvalidName: ``name`` is not the name of a failure domain
    """
    path = f"{domains_path(cluster)}/{name}"
    try:
        check_path(path)
    except ValueError as error:
        raise InvalidName(f"invalid failure domain name {name!r}: {error}") from error
    if "/" in name:
        raise InvalidName(f"invalid failure domain name {name!r}: it must not contain a slash")
    return path
