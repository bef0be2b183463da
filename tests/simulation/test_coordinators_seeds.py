"""Many seeds of transactions on several brokers: one outcome each, told everywhere, and ids once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from magnetar.broker.coordination.coordinator import Coordinator
from magnetar.broker.coordination.participants import Participants
from magnetar.broker.coordination.transaction import CoordinatedTransaction, Participant
from magnetar.broker.transactions import TxnId
from magnetar.broker.transactions.records_pb2 import TransactionMetadataEntry
from magnetar.invariants import BrokenInvariant
from simulation.brokers.coordinators import Coordinated
from simulation.planted import told_too_early
from simulation.seeds import one_by_one, one_finds, seeds
from simulation.trace import Violation

DEFAULT_SEEDS = 24
_GROUPS = 3

pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning"),
]


@pytest.mark.parametrize("group", range(_GROUPS))
def test_transactions_have_one_outcome_whatever_fails(group: int) -> None:
    ended = begun = 0
    for seed in one_by_one(seeds(DEFAULT_SEEDS)[group::_GROUPS]):
        story = Coordinated(seed)
        try:
            story.run()
        except BaseException as error:
            told = "\n".join(story.world.trace.last)
            raise AssertionError(f"{told}\nseed {seed}: {error!r}") from error
        ended += story.ended
        begun += len(story.known)
    assert ended > begun / 2


async def _forgets_aborts(
    self: Participants, participant: Participant, transaction: TxnId, commit: bool, low_water: int
) -> None:
    if commit:
        await _TELL(self, participant, transaction, commit, low_water)


def _reuses_ids(_self: Coordinator, _entry: TransactionMetadataEntry) -> None:
    """Only the property of the log says which ids were given."""


def _lets_go_at_once(self: Coordinator, transaction: CoordinatedTransaction) -> None:
    """A repeated END_TXN is not found."""
    self.log.acknowledge(transaction.positions)


def _low_water_mark_of_the_last(self: Coordinator) -> int:
    return self.last_id


_TELL = Participants.tell
PLANTED: dict[str, tuple[type, str, Callable[..., object]]] = {
    "topics are told before the decision is durable": (Coordinator, "_decide", told_too_early),
    "aborts are told to nobody": (Participants, "tell", _forgets_aborts),
    "ids are given again": (Coordinator, "_saw", _reuses_ids),
    "ended transactions are forgotten at once": (Coordinator, "_remember", _lets_go_at_once),
    "the low-water mark is too high": (Coordinator, "low_water_mark", _low_water_mark_of_the_last),
}


_FOUND_LATE = {"topics are told before the decision is durable": 22}
"""Where to begin with bugs that earlier seeds do not show; it moves whenever scenarios change."""


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, instead = PLANTED[bug]
    monkeypatch.setattr(owner, name, instead)
    first = _FOUND_LATE.get(bug, 0)
    found = (Violation, BrokenInvariant)
    one_finds(bug, range(first, first + 40), lambda seed: Coordinated(seed).run(), found)
