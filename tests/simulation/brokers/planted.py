"""Realistic bugs that can be planted into ownership, to show that the seeds find such.

Each is a context manager that changes the product's classes while it lasts; no product code knows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.ownership.cluster import ClusterOwnership
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.ownership.nodes import OwnerNode
from magnetar.broker.serving.unloading import Unloads
from magnetar.metadata.interface import SessionEvent
from magnetar.server.cluster_broker import ClusterBroker
from simulation.brokers import faults, scenario
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
        replaced(scenario, "FAULTS", likely),
        replaced(ClusterBroker, "_session_changed", unmoved),
        replaced(ClusterOwnership, "_session_changed", unmoved),
    ):
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "takes what is not its own": takes_what_is_not_its_own,
    "gives up before it has closed": gives_up_before_it_has_closed,
    "forgets topics of a split": forgets_topics_of_a_split,
    "outlives its session": outlives_its_session,
}
