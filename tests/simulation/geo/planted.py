"""Realistic bugs that can be planted into replication, to show that the seeds find such.

Each is a context manager that changes the product's classes while it lasts; no product code knows of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from magnetar.broker.dispatch import shared, single
from magnetar.broker.dispatch.key_shared import dispatcher
from magnetar.broker.publishing.deduplication import SourcePositions
from magnetar.broker.replication import clusters, passing_on, replicator
from magnetar.broker.replication.replicator import Replicator
from magnetar.broker.replication.subscriptions.topic import ReplicatedSubscriptions
from magnetar.managed_ledger.position import Position
from magnetar.protocol import hot_codec, hot_replication
from simulation.replacing import replaced


def _rewritten(before: str, after: str) -> ModuleType:
    """The module that rewrites entries, interpreted, with another text in one place."""
    path = Path(replicator.__file__).parents[2] / "protocol" / "hot_replication.py"
    text = path.read_text()
    assert text.count(before) == 1, before
    made = ModuleType("rewritten_hot_replication")
    exec(compile(text.replace(before, after), str(path), "exec"), made.__dict__)
    return made


@contextmanager
def sends_on_what_came_by_replication() -> Iterator[None]:
    """``replicated_from`` is not looked at."""
    made = _rewritten(
        "if tag == _REPLICATED_FROM and not run.placed:\n                return SKIPPED",
        "if tag == _REPLICATED_FROM and not run.placed:\n                pass",
    )
    with ExitStack() as planted:
        for module in (replicator, clusters, passing_on):
            for name in ("ReplicationRun", "InFlight", "encode_replicated", "count_replicated"):
                if getattr(module, name, None) is getattr(hot_replication, name):
                    planted.enter_context(replaced(module, name, getattr(made, name)))
        yield


def counts_as_confirmed_what_is_on_its_way() -> AbstractContextManager[None]:
    """The cursor goes by what was sent or skipped, though entries before have no receipt yet."""

    def hasty(self: Any) -> None:
        self.cursor.mark_delete_to(self._processed)

    return replaced(Replicator, "_settle", hasty)


def forgets_positions_behind_the_snapshot() -> AbstractContextManager[None]:
    """The receiver does not learn them from the entries when a topic is loaded."""

    def forgetful(_self: SourcePositions, _cluster: str, _position: Position) -> None:
        return

    return replaced(SourcePositions, "learn", forgetful)


def goes_on_where_it_was_after_a_cut() -> AbstractContextManager[None]:
    """What was on its way when the connection broke is not sent again."""

    def attached(self: Any) -> None:
        self._in_flight_cleared()
        self.topic.managed_ledger.cursors.set_active(self.cursor, True)

    return replaced(Replicator, "attached", attached)


def moves_a_subscription_to_the_end() -> AbstractContextManager[None]:
    """Another cluster has passed a snapshot, and everything that is here counts as acknowledged."""

    def hasty(self: Any, subscription: Any, _position: Position) -> None:
        subscription.skip_to(self._topic.max_read_position)

    return replaced(ReplicatedSubscriptions, "_move_to", hasty)


@contextmanager
def sends_markers_to_consumers() -> Iterator[None]:
    """A marker counts as one message where entries are dispatched."""

    def counted(
        buffer: bytes, starts: array[int], ends: array[int], first: int, count: int, out: array[int]
    ) -> int:
        found = hot_codec.batch_sizes(buffer, starts, ends, first, count, out)
        for place in range(count):
            out[place] = out[place] or 1
        return found & ~hot_codec.MARKED

    with ExitStack() as planted:
        for module in (single, shared, dispatcher):
            planted.enter_context(replaced(module, "batch_sizes", counted))
        yield


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "sends on what came by replication": sends_on_what_came_by_replication,
    "counts as confirmed what is on its way": counts_as_confirmed_what_is_on_its_way,
    "forgets positions behind the snapshot": forgets_positions_behind_the_snapshot,
    "goes on where it was after a cut": goes_on_where_it_was_after_a_cut,
    "moves a subscription to the end": moves_a_subscription_to_the_end,
    "sends markers to consumers": sends_markers_to_consumers,
}
