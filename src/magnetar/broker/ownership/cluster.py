"""Ownership among the brokers of a cluster, as in Apache Pulsar's brokers.

The broker that creates the node of a bundle owns the bundle until it deletes the node or its session ends.
A broker's knowledge of nodes may be out of date by the delay of a watch; fencing of ledgers and versions of
metadata nodes prevent harm if a broker acts on outdated knowledge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from magnetar.broker.ownership.brokers import BrokerRecord, Leadership, LiveBrokers
from magnetar.broker.ownership.bundles import (
    OWNERS,
    OwnerNode,
    broker_of,
    bundle_at,
    decode_owner,
    encode_owner,
    path_of,
)
from magnetar.broker.ownership.contract import Asked, Bundle, Lost, Owner, Placement
from magnetar.errors import MetadataFailure, OwnerUnknown, ServiceNotReady
from magnetar.io.interfaces import Clock, Io
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import outcome, sleep
from magnetar.lazy_dataclass import dataclass
from magnetar.metadata.following import MetadataCache
from magnetar.metadata.interface import (
    MUST_NOT_EXIST,
    BadVersion,
    Change,
    ChangeKind,
    MetadataError,
    MetadataStore,
    NodeMissing,
    SessionEvent,
)

log = logging.getLogger(__name__)
_MAX_KNOWN = 100_000
_RETRY_SECONDS = 1.0
_PREFERRED_SECONDS = 60.0
"""How long a requested destination applies, in seconds: enough for an unload and the return of the first
client."""
_CHOSEN_SECONDS = 10.0
"""How long, in seconds, lookups of a bundle are answered with the broker that was chosen for the first
lookup, while this broker takes ownership.
"""
_MOST = 100_000


@dataclass(slots=True)
class _Held:
    """A bundle that this broker owns."""

    version: int
    """The version of the bundle's node."""
    generation: int
    releasing: bool = False
    retired: bool = False
    """Whether the bundle was split, so that its node stays and no broker creates it again."""
    doubtful: bool = False
    """Whether a deletion of the node has an unknown outcome, so that the node may belong to another broker,
    with the same version."""


class _Nobody:
    """The cached value for a bundle without a node."""


_NOBODY = _Nobody()


class ClusterOwnership:
    """Implements :class:`magnetar.broker.ownership.contract.Ownership` for the brokers of a cluster."""

    def __init__(
        self,
        io: Io,
        metadata: MetadataStore,
        own: Callable[[int], Owner],
        brokers: LiveBrokers,
        leadership: Leadership,
        placement: Placement,
    ) -> None:
        """:param own: returns the :class:`Owner` that describes this broker with a generation
        :param placement: chooses brokers while this broker leads, or while the cluster has no leader
        """
        self._io = io
        self._metadata = metadata
        self._own = own
        self._brokers = brokers
        self._leadership = leadership
        self.placement = placement
        self._generation = 0
        self._lasts = True
        """Whether this broker has a session with the metadata store."""
        self._retired = False
        self._held: dict[Bundle, _Held] = {}
        tasks = TaskScope(io.loop, "the ownership of bundles", owner_goes_on)
        self._taking: KeyedTasks[Bundle, Owner] = KeyedTasks(tasks)
        self._verifying: KeyedTasks[Bundle, None] = KeyedTasks(tasks)
        self._listeners: list[Lost] = []
        self._known: MetadataCache[OwnerNode | _Nobody] = MetadataCache(
            metadata, OWNERS, self._read, most=_MAX_KNOWN
        )
        metadata.listen(OWNERS, self._changed)
        metadata.listen_session(self._session_changed)

    # Requests for owners

    def check_serving(self) -> None:
        if not self._lasts:
            raise ServiceNotReady("The broker has lost its session with the metadata store")

    async def owner_of(self, bundle: Bundle, asked: Asked = Asked.PLACE, *, persistent: bool = True) -> Owner:
        self.check_serving()
        held = self._held.get(bundle)
        if held is not None:
            return self._here(bundle, held)
        path = path_of(bundle)
        if asked is Asked.READ:
            self._known.forget(path)
        try:
            node = await self._known.get(path)
            if isinstance(node, OwnerNode) and node.own:
                # Either the creation succeeded without an answer, or the bundle was given up after this read.
                self._known.forget(path)
                node = await self._read(path)
                if isinstance(node, OwnerNode) and node.own:
                    return await self._taken(bundle)
            if isinstance(node, OwnerNode) and not self._is_earlier_life(node):
                return self._elsewhere(bundle, node)
            if asked in (Asked.LOOK, Asked.READ):
                raise ServiceNotReady(f"{bundle} is served by no broker at present; please redo the lookup")
            if asked is Asked.PLACE:
                chosen = await self._chosen(bundle, persistent)
                if chosen is not None:
                    return chosen
            return await self._taken(bundle)
        except MetadataError as error:
            raise OwnerUnknown(f"The owner of {bundle} cannot be determined: {error}") from error

    def is_current(self, bundle: Bundle, owner: Owner) -> bool:
        held = self._held.get(bundle)
        current = held is not None and held.generation == owner.generation
        return self._lasts and owner.here and current

    def listen(self, lost: Lost) -> None:
        self._listeners.append(lost)

    def held(self) -> Sequence[Bundle]:
        return [bundle for bundle, held in self._held.items() if not held.releasing]

    def retire(self) -> None:
        """Stops taking ownership of further bundles; the broker keeps the bundles that it owns."""
        self._retired = True

    def _here(self, bundle: Bundle, held: _Held) -> Owner:
        if held.releasing:
            raise ServiceNotReady(f"{bundle} is being unloaded; please redo the lookup")
        return self._own(held.generation)

    def _elsewhere(self, bundle: Bundle, node: OwnerNode) -> Owner:
        if node.disabled:
            raise ServiceNotReady(f"{bundle} is being unloaded by its owner; please redo the lookup")
        record = self._brokers.at_http(node.addresses.http or node.addresses.http_tls)
        broker_id = record.broker_id if record is not None else _host_of(node)
        return Owner(broker_id, node.addresses, False, 0, node.listeners)

    def _is_earlier_life(self, node: OwnerNode) -> bool:
        """Whether the node belongs to an earlier session of this broker. Such a node is replaced; nodes of
        other brokers are never replaced.

        All addresses are compared, because brokers that only have TLS listeners have no other address that
        distinguishes them.
        """
        return not node.own and self._own(0).addresses == node.addresses

    async def _read(self, path: str) -> OwnerNode | _Nobody:
        node = await self._metadata.get(path)
        if node is None:
            return _NOBODY
        try:
            return decode_owner(node.value, node.version, own=node.own)
        except (ValueError, RecursionError) as error:
            raise MetadataFailure(f"{path}: {error}") from error

    # Choosing a broker for a bundle without an owner

    async def _chosen(self, bundle: Bundle, persistent: bool) -> Owner | None:
        """Returns the broker that clients must ask next; None if this broker takes ownership of the
        bundle."""
        own_id, special = self._own(0).broker_id, broker_of(bundle.namespace)
        if special is not None and special == own_id:
            return None
        if special is not None and special in self._brokers.all:
            return _next(self._brokers.all[special], authoritative=True)
        leader = self._leadership.leader()
        if leader is not None and not self._leadership.is_leader and leader.broker_id != own_id:
            return _next(leader, authoritative=False)
        self.placement.wants(bundle, persistent)
        chosen = await self.placement.choose(bundle)
        if chosen == own_id:
            return None
        record = self._brokers.get(chosen) if chosen is not None else None
        if record is None:
            raise ServiceNotReady(f"No broker is available for {bundle}")
        return _next(record, authoritative=True)

    async def _taken(self, bundle: Bundle) -> Owner:
        if self._retired:
            raise ServiceNotReady("The broker is stopping")
        return await outcome(self._io.loop, self._taking.answer(bundle, lambda: self._take(bundle)))

    async def _take(self, bundle: Bundle) -> Owner:
        path = path_of(bundle)
        while True:
            self.check_serving()
            held = self._held.get(bundle)
            if held is not None:
                return self._here(bundle, held)
            own = self._own(0)
            try:
                made = await self._metadata.put(
                    path, encode_owner(own.addresses, own.listeners), MUST_NOT_EXIST, ephemeral=True
                )
            except BadVersion:
                node = await self._read(path)
                self._known.forget(path)
            else:
                return self._took(bundle, made.version)
            if isinstance(node, _Nobody):
                continue
            if node.own:
                return self._took(bundle, node.version)
            if not self._is_earlier_life(node):
                return self._elsewhere(bundle, node)
            log.info("taking over a bundle of an earlier run of this broker", extra={"bundle": str(bundle)})
            await self._remove(path, node.version)

    def _took(self, bundle: Bundle, version: int) -> Owner:
        self.check_serving()
        self._known.forget(path_of(bundle))
        self._generation += 1
        held = self._held[bundle] = _Held(version, self._generation)
        log.info("bundle acquired", extra={"bundle": str(bundle)})
        return self._here(bundle, held)

    # Giving up

    def begin_release(self, bundle: Bundle) -> bool:
        held = self._held.get(bundle)
        if held is None or held.releasing:
            return False
        held.releasing = True
        return True

    async def release(self, bundle: Bundle, towards: str | None = None) -> None:
        held = self._held.get(bundle)
        if held is None:
            return
        try:
            if not held.doubtful or await self._is_ours(bundle, held):
                await self._remove(path_of(bundle), held.version)
        except MetadataError:
            held.releasing, held.doubtful = False, True
            raise
        if towards is not None and self._leadership.is_leader:
            self.placement.prefer(bundle, towards, owned=False)
        self._known.forget(path_of(bundle))
        if self._held.get(bundle) is held:
            del self._held[bundle]
        log.info("bundle released", extra={"bundle": str(bundle)})

    async def retire_bundle(self, bundle: Bundle) -> None:
        """Marks the node of a split bundle as being unloaded, as Pulsar does; the node stays until the
        session ends."""
        held = self._held.get(bundle)
        if held is None:
            return
        held.releasing = held.retired = True
        own = self._own(0)
        value = encode_owner(own.addresses, own.listeners, disabled=True)
        try:
            if held.doubtful and not await self._is_ours(bundle, held):
                self._verify(bundle)
                return
            held.version = (
                await self._metadata.put(path_of(bundle), value, held.version, ephemeral=True)
            ).version
        except BadVersion:
            self._verify(bundle)
        except MetadataError as error:
            raise MetadataFailure(f"{bundle}: {error}") from error

    async def _is_ours(self, bundle: Bundle, held: _Held) -> bool:
        """Whether this session created the node. A true answer stays valid, because only this broker ends its
        session.
        """
        node = await self._metadata.get(path_of(bundle))
        if node is None or not node.own:
            return False
        held.version, held.doubtful = node.version, False
        return True

    async def _remove(self, path: str, version: int) -> None:
        try:
            await self._metadata.delete(path, version)
        except (NodeMissing, BadVersion):
            # The node went with an earlier session, or belongs to another broker by now.
            return

    # Changes made elsewhere

    def _changed(self, change: Change) -> None:
        bundle = bundle_at(change.path)
        if bundle is not None and change.kind is ChangeKind.CREATED:
            self.placement.arrived(bundle)
        elif bundle is not None and change.kind is ChangeKind.DELETED:
            self.placement.left(bundle)
        if bundle is not None and bundle in self._held:
            self._verify(bundle)

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.LOST:
            self._lasts = False
            self._held.clear()
            for lost in self._listeners:
                lost(None)
        elif event in (SessionEvent.CONNECTED, SessionEvent.RECONNECTED):
            self._lasts = True
            for bundle in self._held:
                self._verify(bundle)

    def _verify(self, bundle: Bundle) -> None:
        self._verifying.start(bundle, lambda: self._look_at(bundle), "verifying a bundle")

    async def _look_at(self, bundle: Bundle) -> None:
        """Checks that the node of a bundle that this broker owns is unchanged."""
        while (held := self._held.get(bundle)) is not None:
            try:
                node = await self._metadata.get(path_of(bundle))
            except MetadataError as error:
                log.warning(
                    "cannot verify the ownership of the bundle; trying again",
                    extra={"bundle": str(bundle), "error": str(error)},
                )
                await sleep(self._io.loop, _RETRY_SECONDS)
                continue
            if self._held.get(bundle) is not held:
                continue
            if node is not None and node.own:
                held.version, held.doubtful = node.version, False
            elif held.retired:
                # The node went with its namespace, which may be created again with other bundles.
                self._forget(bundle)
            elif not held.releasing:
                self._lose(bundle)
            return

    def _forget(self, bundle: Bundle) -> None:
        del self._held[bundle]
        self._known.forget(path_of(bundle))

    def _lose(self, bundle: Bundle) -> None:
        self._forget(bundle)
        for lost in self._listeners:
            lost(bundle)


def _next(record: BrokerRecord, *, authoritative: bool) -> Owner:
    return Owner(
        record.broker_id,
        record.addresses,
        False,
        0,
        record.listeners,
        settled=False,
        authoritative=authoritative,
    )


def _host_of(node: OwnerNode) -> str:
    url = node.addresses.http or node.addresses.http_tls or node.addresses.binary or ""
    return url.rpartition("/")[2]


@dataclass(slots=True)
class _Destination:
    broker_id: str
    until: float
    """The time until which the destination applies, in seconds of the monotonic clock."""
    owned: bool
    """Whether the bundle still has its previous owner."""


class Destinations:
    """The brokers that are to own bundles next, for bundles that have no owner or will lose their owner, as
    the leader remembers them.

    The most recent destination, requested or chosen, applies until the bundle has its next owner. The watch
    may report the bundle's arrival at its previous owner late, after the request to unload the bundle; such a
    report leaves the destination in place.
    """

    def __init__(self, clock: Clock, brokers: LiveBrokers) -> None:
        self._clock = clock
        self._brokers = brokers
        self._known: dict[Bundle, _Destination] = {}

    def prefer(self, bundle: Bundle, broker_id: str, *, owned: bool) -> None:
        """Makes a broker the destination of a bundle after its unload.

        :param owned: whether the bundle has an owner, which is to release it first
        """
        self._remember(bundle, broker_id, _PREFERRED_SECONDS, owned=owned)

    def chosen(self, bundle: Bundle, broker_id: str) -> None:
        """Records that a lookup of a bundle was answered with this broker."""
        self._remember(bundle, broker_id, _CHOSEN_SECONDS, owned=False)

    def of(self, bundle: Bundle, exclude: Collection[str] = ()) -> str | None:
        """Returns the id of the destination, a live broker; None if no destination is known.

        :param exclude: ids of brokers that are not acceptable
        """
        known = self._known.get(bundle)
        if known is None:
            return None
        if self._clock.monotonic() >= known.until or self._brokers.get(known.broker_id) is None:
            del self._known[bundle]
            return None
        return None if known.broker_id in exclude else known.broker_id

    def left(self, bundle: Bundle) -> None:
        """Records that the previous owner has released the bundle."""
        if bundle in self._known:
            self._known[bundle].owned = False

    def arrived(self, bundle: Bundle) -> None:
        """Reports that the bundle has an owner: drops the destination, unless the previous owner still has to
        release the bundle."""
        if bundle in self._known and not self._known[bundle].owned:
            del self._known[bundle]

    def forget(self, bundle: Bundle) -> None:
        """Drops the destination of a bundle, because the request to unload the bundle has failed."""
        self._known.pop(bundle, None)

    def forget_all(self) -> None:
        self._known.clear()

    def _remember(self, bundle: Bundle, broker_id: str, seconds: float, *, owned: bool) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[bundle] = _Destination(broker_id, self._clock.monotonic() + seconds, owned)


class FewestBundles:
    """Placement without load reports: a bundle goes to the broker with the fewest bundles.

    The placement counts the bundles that it has assigned since it started, so that a burst of lookups
    spreads over the brokers without reads of the metadata store. A new leader starts from zero.
    """

    def __init__(self, clock: Clock, brokers: LiveBrokers) -> None:
        self._brokers = brokers
        self._given: dict[str, int] = {}
        self._destinations = Destinations(clock, brokers)

    def wants(self, bundle: Bundle, persistent: bool) -> None:
        return

    def prefer(self, bundle: Bundle, broker_id: str, *, owned: bool) -> None:
        self._destinations.prefer(bundle, broker_id, owned=owned)

    def left(self, bundle: Bundle) -> None:
        self._destinations.left(bundle)

    def arrived(self, bundle: Bundle) -> None:
        self._destinations.arrived(bundle)

    async def choose(self, bundle: Bundle, exclude: frozenset[str] = frozenset()) -> str | None:
        live = self._brokers.all
        known = self._destinations.of(bundle, exclude)
        if known is not None:
            return known
        self._given = {name: self._given.get(name, 0) for name in live}
        candidates = [name for name in live if name not in exclude] or list(live)
        if not candidates:
            return None
        chosen = min(candidates, key=lambda name: (self._given[name], name))
        self._given[chosen] += 1
        self._destinations.chosen(bundle, chosen)
        return chosen
