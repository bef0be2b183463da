"""Numbers of topics of namespaces and tenants, for limits."""

from __future__ import annotations

from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.interface import Change, ChangeKind, MetadataStore, SessionEvent
from magnetar.naming.namespace_name import NamespaceName

_MOST_NAMES = 1_000_000
"""Names in memory; beyond it all are dropped, and listed again when needed."""

_SYSTEM = "__"
_PERSISTENT = "persistent"


class TopicCounts:
    """Lists each namespace once, and then follows the metadata store's notifications."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._known: dict[str, set[str]] = {}
        self._early: dict[str, list[Change]] = {}
        """Notifications for namespaces that are being listed."""
        self._held = 0
        self._tenants: dict[str, int] = {}
        """Persistent topics by tenant, for tenants all of whose namespaces are known."""
        self._unknown = 0
        """Topics that were created in namespaces that were not listed."""
        metadata.listen(ROOT, self._changed)
        metadata.listen_session(self._session_changed)

    async def persistent(self, namespace: NamespaceName) -> int:
        """Persistent topics without system topics; each partition counts as one."""
        path = f"{ROOT}/{namespace.path}/persistent"
        while path not in self._known:
            await self._list(path)
        return len(self._known[path])

    async def of_tenant(self, tenant: str) -> int:
        """Persistent topics of a tenant, without system topics; each partition counts as one."""
        count = self._tenants.get(tenant)
        if count is not None:
            return count
        unknown = self._unknown
        paths = await self._paths_of(tenant)
        count = 0
        for path in paths:
            while path not in self._known:
                await self._list(path)
            count += len(self._known[path])
        if unknown == self._unknown and all(path in self._known for path in paths):
            count = self._tenants[tenant] = sum(len(self._known[path]) for path in paths)
        return count

    async def _paths_of(self, tenant: str) -> list[str]:
        """The paths that list a tenant's persistent topics; those of legacy names are one level deeper."""
        root = f"{ROOT}/{tenant}"
        found = []
        for first in await self._metadata.children(root):
            for second in await self._metadata.children(f"{root}/{first}"):
                below = () if second == _PERSISTENT else (_PERSISTENT,)
                found.append("/".join((root, first, second, *below)))
        return found

    async def _list(self, path: str) -> None:
        early = self._early.setdefault(path, [])
        try:
            children = await self._metadata.children(path)
        finally:
            early_is_over = self._early.get(path) is not early
            if not early_is_over:
                del self._early[path]
        if early_is_over:
            # Another listing finished first; this list lacks the changes since then.
            return
        names = {child for child in children if not child.startswith(_SYSTEM)}
        for change in early:
            _apply(names, change)
        if self._held + len(names) > _MOST_NAMES:
            self._forget()
        self._held += len(names)
        self._known[path] = names
        # The namespace may be new in its tenant.
        self._tenants.pop(_tenant_of(path), None)

    def _forget(self) -> None:
        self._known.clear()
        self._early.clear()
        self._tenants.clear()
        self._held = 0

    def _changed(self, change: Change) -> None:
        if change.kind not in (ChangeKind.CREATED, ChangeKind.DELETED):
            return
        parent = change.path.rpartition("/")[0]
        early = self._early.get(parent)
        if early is not None:
            early.append(change)
        names = self._known.get(parent)
        if names is not None:
            more = _apply(names, change)
            self._held += more
            tenant = _tenant_of(parent)
            if tenant in self._tenants:
                self._tenants[tenant] += more
        elif change.kind is ChangeKind.CREATED and parent.endswith("/" + _PERSISTENT):
            self._unknown += 1
            self._tenants.pop(_tenant_of(parent), None)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.CONNECTED:
            # Notifications may have been lost.
            self._forget()


def _tenant_of(path: str) -> str:
    return path[len(ROOT) + 1 :].partition("/")[0]


def _apply(names: set[str], change: Change) -> int:
    """Applies the creation or deletion of a topic; returns the change in the number of topics."""
    name = change.path.rpartition("/")[2]
    before = len(names)
    if change.kind is ChangeKind.DELETED:
        names.discard(name)
    elif not name.startswith(_SYSTEM):
        names.add(name)
    return len(names) - before
