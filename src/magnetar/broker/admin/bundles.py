"""Administration of bundles: unloading and splitting them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import pairwise

from magnetar.broker.admin.brokers import elsewhere
from magnetar.broker.load.settings import SplitSettings
from magnetar.broker.ownership.bundles import Carried, ToDivide, positions_within
from magnetar.broker.ownership.contract import Asked, Bundle, Owner
from magnetar.broker.ownership.peers import REDIRECTED, PeerRefused, ask
from magnetar.broker.policies.records import Record
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import (
    BrokerError,
    ConcurrentModification,
    HasChildren,
    MetadataFailure,
    NotAllowed,
    NotFound,
    OwnerUnknown,
    PreconditionFailed,
    ServiceNotReady,
)
from magnetar.io.waiting import together
from magnetar.metadata.interface import MetadataError
from magnetar.naming import name_rules as naming
from magnetar.naming.bundles import BundleRange, Bundles
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName

LARGEST, HOT = "LARGEST", "HOT"
DESTINATION = frozenset({"destinationBroker"})
_AT_ONCE = 16


class BundleAdmin:
    """Administration of the bundles of namespaces. Namespaces are given as ``tenant/namespace``, bundles as
    ``0xSTART_0xEND``."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._dividing: set[Bundle] = set()
        """Bundles being split. They are not unloaded until the split ends: a broker that does not know the
        parts could take ownership of the whole bundle."""

    async def of(self, namespace: str) -> Mapping[str, object]:
        """Returns ``BundlesData``: the current bundles of a namespace.

        :raises NamespaceNotFound: no such namespace
        """
        found = await self._broker.bundles.of_namespace(self._broker.parse_namespace(namespace))
        return {"boundaries": found.texts(), "numBundles": len(found)}

    async def named(self, namespace: NamespaceName, text: str) -> Bundle:
        """Returns the bundle with the hash range ``text`` in a namespace.

        :raises PreconditionFailed: no such bundle
        """
        try:
            wanted = BundleRange.parse(text)
        except naming.InvalidName as error:
            raise PreconditionFailed(f"Invalid bundle range: {text}") from error
        found = (await self._broker.bundles.of_namespace(namespace)).find(wanted.lower)
        if found != wanted:
            raise PreconditionFailed(
                f"Invalid upper boundary for bundle {namespace}/{wanted}. "
                f"Expected upper boundary of {namespace}/{found}"
            )
        return Bundle(namespace, wanted)

    async def check_here(self, bundle: Bundle, *, authoritative: bool = False) -> Owner:
        """Checks that this broker owns a bundle, or makes this broker the owner; returns the owner.

        :param authoritative: whether the leader has chosen this broker to own the bundle, if the bundle has
            no owner
        :raises ServedElsewhere: another broker owns the bundle, or must be asked
        """
        owner = await self._broker.ownership.owner_of(bundle, Asked.TAKE if authoritative else Asked.PLACE)
        if not owner.here:
            raise elsewhere(f"{bundle} is served by {owner.broker_id}", owner)
        return owner

    # All bundles of a namespace

    async def each_owner(
        self,
        namespace: NamespaceName,
        here: Callable[[Bundle], Awaitable[None]],
        method: str,
        path: str,
        *,
        place: bool = False,
    ) -> None:
        """Processes each bundle of a namespace at its owner.

        :param here: processes a bundle of this broker
        :param method: HTTP method of the request to other brokers
        :param path: the end of that request's path, after the bundle; ``/unload`` for example
        :param place: whether to include bundles without an owner, after assigning an owner to each
        :raises BrokerError: the first error; the other bundles were processed
        """
        await self._broker.namespaces.check(namespace)
        bundles = [Bundle(namespace, each) for each in await self._broker.bundles.of_namespace(namespace)]

        async def failure_at(bundle: Bundle) -> Exception | None:
            try:
                await self._at_owner(bundle, here, method, path, place=place)
            except Exception as error:  # noqa: BLE001 - raised below
                return error
            return None

        for failure in await together(self._broker.io.loop, bundles, failure_at, _AT_ONCE):
            if failure is not None:
                raise failure

    async def _at_owner(
        self,
        bundle: Bundle,
        here: Callable[[Bundle], Awaitable[None]],
        method: str,
        path: str,
        *,
        place: bool,
    ) -> None:
        owner = await self._owner(bundle, Asked.PLACE if place else Asked.LOOK)
        if owner is None:
            return
        if owner.here:
            await here(bundle)
            return
        root = "/admin" if bundle.namespace.legacy else "/admin/v2"
        await ask(self._broker.beside, owner, method, f"{root}/namespaces/{bundle}{path}")

    async def _owner(self, bundle: Bundle, asked: Asked) -> Owner | None:
        """Returns the owner of a bundle; None if the bundle has no owner or is being unloaded.

        :raises OwnerUnknown: the owner cannot be determined now
        """
        try:
            return await self._broker.ownership.owner_of(bundle, asked)
        except ServiceNotReady as error:
            if asked is Asked.PLACE or isinstance(error, OwnerUnknown):
                raise
            return None

    # Unloading

    async def unload_all(self, namespace: str) -> None:
        """Unloads all bundles of a namespace.

        :raises NamespaceNotFound: no such namespace
        :raises BrokerError: the first error; the other bundles were unloaded
        """
        await self.each_owner(self._broker.parse_namespace(namespace), self._unload, "PUT", "/unload")

    async def unload(self, namespace: str, text: str, towards: str | None) -> None:
        """Closes the topics of a bundle and releases its ownership. Clients look up the topics again, and the
        leader chooses the new owner.

        :param towards: id of the broker that is to own the bundle next; None: the leader chooses one
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: no such bundle
        :raises NotAllowed: no such broker
        :raises ServedElsewhere: another broker owns the bundle
        :raises ConcurrentModification: the bundle is being split
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        bundle = await self.named(name, text)
        if towards:
            towards = towards.removeprefix("https://").removeprefix("http://")
            await self._prefer(bundle, towards)
        owner = await self._owner(bundle, Asked.LOOK)
        if owner is not None and not owner.here:
            raise elsewhere(f"{bundle} is served by {owner.broker_id}", owner, self._said_here(owner))
        await self._unload(bundle, towards)

    async def delete(self, namespace: str, text: str, *, force: bool) -> None:
        """Releases the ownership of a bundle. The namespace keeps the bundle, which gets an owner when one of
        its topics is used.

        :param force: release the ownership even if the bundle has topics; the topics are kept
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: no such bundle, or the bundle has no owner
        :raises HasChildren: the bundle has topics
        :raises ServedElsewhere: another broker owns the bundle
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        bundle = await self.named(name, text)
        owner = await self._owner(bundle, Asked.LOOK)
        if owner is None:
            raise PreconditionFailed(f"Failed to find ownership for ServiceUnit:{bundle}")
        if not owner.here:
            raise elsewhere(f"{bundle} is served by {owner.broker_id}", owner)
        if not force and await self._topics(bundle):
            raise HasChildren("Cannot delete non empty bundle")
        await self._unload(bundle)

    def _said_here(self, owner: Owner) -> frozenset[str]:
        """Returns the query parameters to leave out when a request to unload is redirected to the owner.

        If this broker leads the cluster and the owner is a broker of Apache Pulsar, the destination is left
        out: the owner would redirect the request back to the leader.
        """
        beside = self._broker.beside
        record = beside.brokers.get(owner.broker_id) if beside is not None else None
        leads = beside is not None and beside.leadership.is_leader
        return DESTINATION if leads and not (record is not None and record.is_magnetar) else frozenset()

    async def _unload(self, bundle: Bundle, towards: str | None = None) -> None:
        if bundle in self._dividing:
            raise ConcurrentModification(f"{bundle} is being split")
        try:
            await self._broker.topics.unloads.unload(bundle, towards)
        except MetadataError as error:
            raise MetadataFailure(f"{bundle} was not unloaded: {error}") from error

    async def _prefer(self, bundle: Bundle, towards: str) -> None:
        """Tells the leader which broker is to own the bundle next.

        :raises NotAllowed: ``towards`` is not the id of a live broker, or this broker is standalone
        """
        beside = self._broker.beside
        if beside is None or towards not in beside.brokers.all:
            raise NotAllowed("Not allowed unload namespace bundle to inactive destination broker")
        # The reports of the previous move must not count for this one.
        owner = await self._owner(bundle, Asked.READ)
        beside.placement.prefer(bundle, towards, owned=owner is not None)
        leader = beside.leadership.leader()
        if leader is None or beside.leadership.is_leader:
            return
        if owner is None or not owner.here:
            # The owner informs the leader.
            return
        try:
            path = f"/admin/v2/namespaces/{bundle}/unload"
            await beside.admin.call(leader, "PUT", path, {"destinationBroker": towards})
        except PeerRefused as error:
            # The leader has noted the destination, and redirects because the bundle is served here.
            if error.status != REDIRECTED:
                raise

    # Splitting

    async def split(
        self,
        namespace: str,
        text: str,
        algorithm: str | None,
        positions: Sequence[int],
        *,
        unload: bool,
        authoritative: bool,
    ) -> None:
        """Splits a bundle. Its topics stay loaded, and clients stay connected.

        :param text: the hash range of the bundle, or :data:`LARGEST` or :data:`HOT`
        :param algorithm: one of Pulsar's split algorithms; None: the algorithm in the settings
        :param positions: the hashes to split at, for ``specified_positions_divide``
        :param unload: unload the parts afterwards
        :raises NamespaceNotFound: no such namespace
        :param authoritative: as for :meth:`check_here`
        :raises PreconditionFailed: no such bundle or algorithm, or the algorithm needs ``positions``
        :raises NotFound: ``text`` is :data:`LARGEST` or :data:`HOT`, and no bundle has topics or messages
        :raises ServedElsewhere: another broker owns the bundle
        :raises ConcurrentModification: the bundle is being split, or another broker owns a part of it
        """
        bounds = self._bounds
        if algorithm and algorithm not in bounds.supported:
            raise PreconditionFailed(
                "Unsupported namespace bundle split algorithm, supported algorithms are "
                f"[{', '.join(bounds.supported)}]"
            )
        algorithm = algorithm or bounds.algorithm
        if algorithm == "specified_positions_divide" and not positions:
            raise PreconditionFailed(
                "With specified_positions_divide split algorithm, splitBoundaries must not be empty"
            )
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        bundle = await self._heaviest(name, text) if text in (LARGEST, HOT) else await self.named(name, text)
        await self.check_here(bundle, authoritative=authoritative)
        at = positions_within(await self._to_divide(bundle, positions), algorithm)
        if not at:
            return
        parts = await self._divided(bundle, at)
        if unload:
            for part in parts:
                await self._unload(part)

    @property
    def _bounds(self) -> SplitSettings:
        desk = self._broker.load
        return SplitSettings() if desk is None else desk.manager.settings.split

    async def _to_divide(self, bundle: Bundle, positions: Sequence[int]) -> ToDivide:
        bounds = self._bounds
        most = Carried(bounds.max_rate, bounds.max_throughput)
        carried = await self._carried(bundle)
        return ToDivide(bundle.range, carried, positions, most, bounds.tolerance)

    async def _divided(self, bundle: Bundle, at: Sequence[int]) -> Sequence[Bundle]:
        """Splits a bundle: takes ownership of the parts, then stores them as bundles of the namespace;
        returns the parts.

        Once the parts are stored, no broker can own the whole bundle.

        :raises ConcurrentModification: the bundle is being or was split, or another broker owns a part
        """
        if bundle in self._dividing:
            raise ConcurrentModification(f"{bundle} is being split: wait until the split is done")
        self._dividing.add(bundle)
        try:
            # From here on the bundle is not unloaded; it may have been since the caller checked.
            await self.check_here(bundle)
            return await self._divide(bundle, at)
        finally:
            self._dividing.remove(bundle)

    async def _divide(self, bundle: Bundle, at: Sequence[int]) -> Sequence[Bundle]:
        ownership = self._broker.ownership
        bounds = [bundle.range.lower, *at, bundle.range.upper]
        parts = [Bundle(bundle.namespace, BundleRange(a, b)) for a, b in pairwise(bounds)]
        had, taken = frozenset(ownership.held()), list[Bundle]()

        def divide(record: Record) -> None:
            known = (record.get("bundles") or {}).get("boundaries")
            before = Bundles.parse(known) if known else first
            if before.find(bundle.range.lower) != bundle.range:
                raise ConcurrentModification(f"{bundle} was split in the meantime")
            divided = Bundles(sorted({*before.boundaries, *at}))
            record["bundles"] = {"boundaries": divided.texts(), "numBundles": len(divided)}

        first = await self._broker.bundles.of_namespace(bundle.namespace)
        try:
            for part in parts:
                owner = await ownership.owner_of(part, Asked.TAKE)
                if not owner.here:
                    raise ConcurrentModification(
                        f"{part}, a part of the bundle, is served by {owner.broker_id}"
                    )
                if part not in had:
                    taken.append(part)
            await self._broker.policies.namespaces.divide(bundle.namespace, divide)
        except (MetadataError, BrokerError):
            for part in taken:
                await self._unload(part)
            raise
        self._broker.bundles.forget(bundle.namespace)
        await ownership.retire_bundle(bundle)
        return parts

    async def _heaviest(self, name: NamespaceName, text: str) -> Bundle:
        """Returns the bundle with the most topics or, for :data:`HOT`, the bundle of this broker with the
        highest message rate.

        :raises NotFound: no bundle has topics or, for :data:`HOT`, messages
        """
        best: tuple[float, Bundle] | None = None
        for each in await self._broker.bundles.of_namespace(name):
            bundle = Bundle(name, each)
            carried = await self._carried(bundle)
            weight = len(carried) if text == LARGEST else sum(each.rate for each in carried.values())
            if weight and (best is None or weight > best[0]):
                best = (weight, bundle)
        if best is None:
            raise NotFound(f"Bundle range {text} not found")
        return best[1]

    async def _carried(self, bundle: Bundle) -> Mapping[int, Carried]:
        """Returns the topics of a bundle by their hashes, each with its load if this broker has loaded the
        topic.
        """
        found: dict[int, Carried] = {}
        for name in await self._topics(bundle):
            topic = self._broker.topics.loaded.get(str(name))
            carried = found.get(name.bundle_hash, Carried())
            found[name.bundle_hash] = carried if topic is None else carried.plus(_through(topic))
        return found

    async def _topics(self, bundle: Bundle) -> Sequence[TopicName]:
        names = await self._broker.topic_names(str(bundle.namespace), mode="ALL", system=True)
        parsed = [TopicName.parse(name) for name in names]
        return [name for name in parsed if name in bundle]

    async def positions(self, namespace: str, text: str, topics: Sequence[str]) -> Mapping[str, object]:
        """Returns ``TopicHashPositions``: the hashes of topics of a bundle.

        :param topics: full names, also of partitioned topics; empty: all topics of the bundle
        :raises NamespaceNotFound: no such namespace
        :raises PreconditionFailed: no such bundle
        """
        name = self._broker.parse_namespace(namespace)
        await self._broker.namespaces.check(name)
        bundle = await self.named(name, text)
        wanted = {str(self._broker.parse_topic(topic).base) for topic in topics}
        found = {
            str(each): each.bundle_hash
            for each in await self._topics(bundle)
            if not wanted or str(each) in topics or str(each.base) in wanted
        }
        return {"namespace": str(name), "bundle": text, "topicHashPositions": found}


def _through(topic: AnyTopic) -> Carried:
    came, went = topic.rate_in, topic.rate_out
    return Carried(came.per_second + went.per_second, came.bytes_per_second + went.bytes_per_second)
