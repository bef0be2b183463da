"""Realistic bugs that can be planted into ownership, deletions and shadow topics, for the seeds to find.

Each is a context manager that changes the product's classes while it lasts; no product code knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

import model_zookeeper
import simulated_bookkeeper

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.admin.partitions import PartitionAdmin
from magnetar.broker.ownership.bundles import OwnerNode
from magnetar.broker.ownership.cluster import ClusterOwnership
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.policies.namespaces import NamespaceRecords
from magnetar.broker.policies.records import Record, create
from magnetar.broker.replication.replicator import Replicator
from magnetar.broker.replication.shadow_replicator import ShadowReplicator
from magnetar.broker.serving.live_topics import LiveTopics
from magnetar.broker.serving.unloading import Unloads
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.shadow import ShadowTopic
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.records import ManagedLedgerRecord
from magnetar.managed_ledger.shadow_ledger import ShadowLedger
from magnetar.metadata import passing_on
from magnetar.metadata.interface import SessionEvent
from magnetar.naming.namespace_name import LOCAL_POLICIES, NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.server.cluster_broker import ClusterBroker
from simulation.brokers import faults, scenario
from simulation.brokers.world import World
from simulation.replacing import replaced


def takes_what_is_not_its_own() -> AbstractContextManager[None]:
    """Who was told to take a bundle removes the node that is there, whoever made it."""

    def not_own(_self: ClusterOwnership, node: OwnerNode) -> bool:
        return not node.own

    return replaced(ClusterOwnership, "_is_earlier_life", not_own)


def gives_up_before_it_has_closed() -> AbstractContextManager[None]:
    """The node of a bundle goes while its topics are still served."""

    async def hasty(self: Unloads, bundle: Bundle, towards: str | None) -> None:
        ownership = self._topics.ownership
        if ownership.begin_release(bundle):
            await ownership.release(bundle, towards)
        await self._topics.unload_topics(self._topics.loaded_within(bundle))

    return replaced(Unloads, "_unload", hasty)


def forgets_topics_of_a_split() -> AbstractContextManager[None]:
    """Parts of a divided bundle are given up at once, and their topics served on."""
    divided = BundleAdmin._divided

    async def careless(self: BundleAdmin, bundle: Bundle, at: Sequence[int]) -> Sequence[Bundle]:
        ownership = self._broker.ownership
        for part in await divided(self, bundle, at):
            if ownership.begin_release(part):
                await ownership.release(part)
        return ()

    return replaced(BundleAdmin, "_divided", careless)


@contextmanager
def outlives_its_session() -> Iterator[None]:
    """A broker that has lost its session goes on as if nothing had been."""

    def unmoved(_self: object, _event: SessionEvent) -> None:
        return

    likely = {faults.cut_off_metadata: 20, faults.unload: 10}
    with (
        replaced(simulated_bookkeeper, "SEVERAL", 0.0),
        replaced(scenario, "FAULTS", likely),
        replaced(ClusterBroker, "_session_changed", unmoved),
        replaced(ClusterOwnership, "_session_changed", unmoved),
    ):
        yield


class _NeverRaised(Exception):
    """Nothing is one."""


@contextmanager
def takes_its_own_change_for_anothers() -> Iterator[None]:
    """Whoever asks a server again that had not heard of the first try takes its refusal for the last word."""
    likely = {faults.unload: 5}
    settings = World._settings

    def short_ledgers(self: World, quorums: tuple[int, int, int]) -> dict[str, str]:
        return settings(self, quorums) | {"managedLedgerMaxEntriesPerLedger": "5"}

    with (
        replaced(World, "_settings", short_ledgers),
        replaced(simulated_bookkeeper, "SEVERAL", 1.0),
        replaced(model_zookeeper, "LATE_SECONDS", (0.5,)),
        replaced(model_zookeeper, "LEADER_SERVES", 0.0),
        replaced(scenario, "FAULTS", likely),
        replaced(passing_on, "BadVersion", _NeverRaised),
    ):
        yield


# Of deletions (deletions.py)


def looks_at_its_own_topics_only() -> AbstractContextManager[None]:
    """A namespace counts as empty where the broker that is asked has no non-persistent topic of it."""

    async def own(self: LiveTopics, namespace: NamespaceName, *, deleting: bool = False) -> Sequence[str]:
        return [str(name) for name in self._served.creation.non_persistent(namespace)]

    return replaced(LiveTopics, "of_namespace", own)


def deletes_what_it_looked_at_before() -> AbstractContextManager[None]:
    """Partitions are looked at all together, and not again when it is the turn of each."""
    delete = PartitionAdmin._delete

    async def unasked(self: PartitionAdmin, partition: TopicName, *, force: bool) -> None:
        await delete(self, partition, force=True)

    return replaced(PartitionAdmin, "_delete", unasked)


@contextmanager
def leaves_local_policies_behind() -> Iterator[None]:
    """The policies of a namespace go first, and local ones that are there when it is made again stay."""

    async def late(self: NamespaceRecords, name: NamespaceName) -> None:
        await self._metadata.delete(f"/admin/policies/{name.path}")
        await self._delete_quietly(f"{LOCAL_POLICIES}/{name.path}")

    async def kept(self: NamespaceRecords, name: NamespaceName, local: Record) -> None:
        await create(self._metadata, f"{LOCAL_POLICIES}/{name.path}", local)

    with replaced(NamespaceRecords, "delete", late), replaced(NamespaceRecords, "_put_new_local", kept):
        yield


PLANTED_IN_DELETIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "looks at its own topics only": looks_at_its_own_topics_only,
    "deletes what it looked at before": deletes_what_it_looked_at_before,
    "leaves local policies behind": leaves_local_policies_behind,
}

# Of topics that are created again (recreations.py)


def writes_after_its_tenure() -> AbstractContextManager[None]:
    """Only the version of a record tells who may write it."""

    def goes_on(_self: Tenure) -> None:
        return

    return replaced(Tenure, "end", goes_on)


PLANTED_IN_RECREATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "writes after its tenure": writes_after_its_tenure,
}

# Of shadow topics (shadows.py)


def does_not_announce_the_last_entry_again() -> AbstractContextManager[None]:
    """A shadow that another broker has just loaded does not know the last entry, and is not told."""

    def attached(self: ShadowReplicator) -> None:
        Replicator.attached(self)

    return replaced(ShadowReplicator, "attached", attached)


def does_not_announce_again_what_a_cut_lost() -> AbstractContextManager[None]:
    """The replicator of the source goes on where it was when the connection broke."""

    def forward(self: Replicator) -> None:
        self._in_flight_cleared()
        self._left = self._blocked_at = None

    return replaced(Replicator, "_rewind", forward)


def drops_what_waits_for_its_ledger() -> AbstractContextManager[None]:
    """Entries in a ledger that is still unknown when the record was read are neither taken nor refused."""

    def forgetful(self: ShadowTopic) -> None:
        self._take()
        self._held.clear()

    return replaced(ShadowTopic, "_take_or_refuse", forgetful)


def takes_every_ledger_for_known() -> AbstractContextManager[None]:
    """A shadow does not look for the ledger of an announced entry."""
    learn = ShadowLedger.learn

    def confident(self: ShadowLedger, position: Position) -> bool:
        learn(self, position)
        return True

    return replaced(ShadowLedger, "learn", confident)


def leaves_cursors_in_ledgers_that_are_gone() -> AbstractContextManager[None]:
    """Cursors of a shadow do not move past the ledgers that its source has deleted."""

    def nothing(_self: ShadowLedger) -> None:
        return

    return replaced(ShadowLedger, "_skip_gone", nothing)


def keeps_ledgers_that_are_gone() -> AbstractContextManager[None]:
    """A shadow adds ledgers to its list, and removes none."""
    take = ShadowLedger._take

    def grown(self: ShadowLedger, source: ManagedLedgerRecord) -> None:
        listed = {each.ledger_id for each in source.ledgers}
        source.ledgers[:0] = [each for each in self.ledgers if each.ledger_id not in listed]
        take(self, source)

    return replaced(ShadowLedger, "_take", grown)


def ignores_the_end_of_a_closed_ledger() -> AbstractContextManager[None]:
    """A shadow believes that it knew all entries of a ledger when the ledger was closed."""
    take = ShadowLedger._take

    def unmoved(self: ShadowLedger, source: ManagedLedgerRecord) -> None:
        known = {each.ledger_id: each.entries for each in self.ledgers if not each.closed_ms}
        for each in source.ledgers:
            each.entries = known.get(each.ledger_id, each.entries)
        take(self, source)

    return replaced(ShadowLedger, "_take", unmoved)


def stays_terminated() -> AbstractContextManager[None]:
    """A shadow stays terminated when its source is deleted and created again."""
    take = ShadowLedger._take

    def ended(self: ShadowLedger, source: ManagedLedgerRecord) -> None:
        source.terminated = source.terminated or self.terminated
        take(self, source)

    return replaced(ShadowLedger, "_take", ended)


def refuses_announcements_once_terminated() -> AbstractContextManager[None]:
    """A terminated shadow refuses the replicator of its source, which may have entries left to announce."""
    return replaced(ShadowTopic, "takes_announcements_of", Topic.takes_announcements_of)


PLANTED_IN_SHADOWS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "does not announce the last entry again": does_not_announce_the_last_entry_again,
    "does not announce again what a cut lost": does_not_announce_again_what_a_cut_lost,
    "drops what waits for its ledger": drops_what_waits_for_its_ledger,
    "takes every ledger for known": takes_every_ledger_for_known,
    "leaves cursors in ledgers that are gone": leaves_cursors_in_ledgers_that_are_gone,
    "keeps ledgers that are gone": keeps_ledgers_that_are_gone,
    "ignores the end of a closed ledger": ignores_the_end_of_a_closed_ledger,
    "stays terminated": stays_terminated,
    "refuses announcements once terminated": refuses_announcements_once_terminated,
}

PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "takes what is not its own": takes_what_is_not_its_own,
    "gives up before it has closed": gives_up_before_it_has_closed,
    "forgets topics of a split": forgets_topics_of_a_split,
    "outlives its session": outlives_its_session,
    "takes its own change for another's": takes_its_own_change_for_anothers,
}
