"""A transaction coordinator: its ids, its decisions, its time-outs, and what survives a crash."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest
from coordinated import Coordinated
from faulty_ledgers import InjectedFault

from magnetar.broker.coordination.transaction import ABORTING, COMMITTED, COMMITTING, OPEN
from magnetar.broker.transactions import BatchedWrites
from magnetar.broker.transactions.log import COORDINATOR_RECORDS
from magnetar.broker.transactions.records_pb2 import TransactionMetadataEntry, TransactionStatus
from magnetar.errors import (
    InvalidTransactionStatus,
    NotAllowed,
    PersistenceFailure,
    TooManyRequests,
    TransactionCoordinatorNotFound,
    TransactionNotFound,
)
from magnetar.managed_ledger.settings import ManagedLedgerSettings

A, B = "persistent://public/default/a", "persistent://public/default/b"
VECTORS = Path(__file__).parents[2] / "vectors" / "transactions"
BATCHED = BatchedWrites(enabled=True)
TINY = ManagedLedgerSettings(max_entries_per_ledger=4, min_rollover_ms=0)


def test_a_commit_is_durable_before_anybody_is_told_and_answered_after_all_were() -> None:
    life = Coordinated()
    least = life.begin()
    life.add(least, A, B)
    life.add_subscription(least, A, "s")
    life.silent.add(B)
    answer = life.coordinator.end(least, commit=True)
    life.world.wait(0.05)
    # NEW, two additions and COMMITTING.
    assert life.durable_when_told == [4, 4, 4]
    assert {each[0] for each in life.told} == {A, B, f"{A}, subscription s"}
    assert {each[1:] for each in life.told} == {((0, 0), True, -1)}
    assert not answer.done()
    life.silent.clear()
    life.world.wait(1)
    assert answer.done()
    # Only the one that had not answered was told again.
    assert [each[0] for each in life.told].count(A) == 1
    assert [each[0] for each in life.told].count(B) > 1
    assert life.records() == [
        "NEW 0",
        "ADD_PARTITION 0",
        "ADD_SUBSCRIPTION 0",
        "UPDATE 0 COMMITTING",
        "UPDATE 0 COMMITTED",
    ]


def test_records_have_the_fields_of_apache_pulsar() -> None:
    life = Coordinated()
    life.begin()
    least = life.begin(60_000, "role")
    life.add(least, A)
    life.end(least, commit=False)
    found: list[TransactionMetadataEntry] = []
    life.world.run(life.coordinator.log.replay(lambda _at, entry: found.append(entry)))
    now = found[1].start_time
    assert found[1] == TransactionMetadataEntry(
        metadata_op=TransactionMetadataEntry.NEW,
        txnid_least_bits=1,
        txnid_most_bits=0,
        timeout_ms=60_000,
        start_time=now,
        last_modification_time=now,
        max_local_txn_id=1,
        owner="role",
    )
    assert not found[0].HasField("owner")
    assert list(found[2].partitions) == [A]
    for record in found:
        assert record.HasField("txnid_most_bits")
        assert record.HasField("max_local_txn_id")
    # Zeros are written, too.
    assert found[3].HasField("expected_status")


def test_an_abort_is_told_as_such() -> None:
    life = Coordinated()
    least = life.begin()
    life.add(least, A)
    life.end(least, commit=False)
    assert life.told == [(A, (0, 0), False, -1)]
    assert life.records()[-2:] == ["UPDATE 0 ABORTING", "UPDATE 0 ABORTED"]


def test_ids_are_never_given_twice_not_even_after_all_ledgers_are_trimmed() -> None:
    disk = None
    given: list[int] = []
    for _ in range(6):
        life = Coordinated(disk, settings=TINY)
        for _ in range(5):
            least = life.begin()
            given.append(least)
            life.end(least)
        life.world.wait(65)
        assert life.coordinator.log.managed_ledger.ledgers.total_entries() <= 4
        disk = life.crash()
    assert given == list(range(30))


def test_ids_go_on_when_the_last_record_was_acknowledged_and_then_trimmed() -> None:
    life = Coordinated()
    for expected in range(3):
        assert life.begin() == expected
        life.end(expected)
    life.world.wait(65)
    assert life.coordinator.log.cursor.backlog() == 0
    for expected in (3, 4):
        # The first restart finds the last record, consumed; then its ledger is trimmed.
        life = Coordinated(life.crash())
        life.world.wait(1)
        assert life.coordinator.log.managed_ledger.ledgers.total_entries() == 0
        life = Coordinated(life.crash())
        assert life.begin() == expected
        life.end(expected)
        life.world.wait(65)


def test_ids_go_on_behind_those_that_apache_pulsar_left_in_the_property() -> None:
    life = Coordinated()
    life.world.run(life.coordinator.log.managed_ledger.set_properties({"max_local_txn_id": "41"}))
    life = Coordinated(life.crash())
    assert life.begin() == 42


def test_the_low_water_mark_is_below_the_oldest_open_transaction() -> None:
    life = Coordinated()
    first, second, third = life.begin(), life.begin(), life.begin()
    marks = [life.coordinator.low_water_mark()]
    for least in (second, first, third):
        life.add(least, A)
        life.end(least)
        marks.append(life.coordinator.low_water_mark())
    assert marks == [-1, -1, 1, 2]
    # What ends is not below its own mark.
    assert [each[3] for each in life.told] == [-1, -1, 1]


@pytest.mark.parametrize("writes", [BatchedWrites(), BATCHED])
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_is_carried_through_after_a_crash(writes: BatchedWrites, commit: bool) -> None:
    life = Coordinated(writes=writes)
    least = life.begin()
    life.add(least, A)
    life.add_subscription(least, B, "s")
    life.silent.add(A)
    life.coordinator.end(least, commit=commit)
    life.world.wait(5)
    life = Coordinated(life.crash(), writes=writes)
    life.world.wait(1)
    assert sorted(life.told) == [
        (A, (0, 0), commit, -1),
        (f"{B}, subscription s", (0, 0), commit, -1),
    ]
    assert life.coordinator.transactions == {}


def test_a_client_that_repeats_end_waits_for_it_also_at_the_next_owner() -> None:
    life = Coordinated()
    least = life.begin()
    life.add(least, A)
    life.silent.add(A)
    life.coordinator.end(least, commit=True)
    life.world.wait(1)
    again = life.coordinator.end(least, commit=True)
    life.world.wait(1)
    assert not again.done()
    life = Coordinated(life.crash())
    life.end(least)
    assert life.told


@pytest.mark.parametrize("commit", [True, False])
def test_an_answer_that_got_lost_is_given_again_even_after_a_crash(commit: bool) -> None:
    life = Coordinated()
    least = life.begin()
    life.end(least, commit=commit)
    life.end(least, commit=commit)
    for orderly in (False, True):
        life = Coordinated(life.stop() if orderly else life.crash())
        life.end(least, commit=commit)
        with pytest.raises(TransactionNotFound):
            life.end(least, commit=not commit)
    life.world.wait(65)
    with pytest.raises(TransactionNotFound, match=r"^The transaction with this txdID `\(0,0\)`not found $"):
        life.end(least, commit=commit)
    assert life.coordinator.log.cursor.backlog() == 0


def test_the_other_action_and_additions_are_refused_while_it_ends() -> None:
    life = Coordinated()
    least = life.begin()
    life.add(least, A)
    life.silent.add(A)
    life.coordinator.end(least, commit=True)
    with pytest.raises(InvalidTransactionStatus) as refused:
        life.end(least, commit=False)
    assert str(refused.value) == "Expect Txn `(0,0)` to be in ABORTING status but it is in COMMITTING status"
    with pytest.raises(InvalidTransactionStatus) as refused:
        life.add(least, B)
    assert str(refused.value) == "Expect Txn `(0,0)` to be in OPEN status but it is in COMMITTING status"


def test_what_is_added_in_the_turn_before_the_end_is_told_the_end() -> None:
    life = Coordinated()
    least = life.begin()
    life.start(life.coordinator.add_partitions(least, [A]))
    life.world.simulation.loop.call_soon(lambda: life.coordinator.end(least, commit=True))
    life.world.wait(1)
    assert life.told == [(A, (0, 0), True, -1)]


def test_an_unknown_transaction_is_not_found() -> None:
    life = Coordinated()
    for request in (
        lambda: life.add(5, A),
        lambda: life.add_subscription(5, A, "s"),
        lambda: life.end(5, commit=False),
    ):
        with pytest.raises(TransactionNotFound, match=r"`\(0,5\)`not found"):
            request()


@pytest.mark.parametrize("timeout_ms", [0, -1, 1])
def test_a_transaction_without_time_is_aborted_at_once(timeout_ms: int) -> None:
    life = Coordinated()
    life.begin(timeout_ms)
    life.world.wait(0.1)
    assert life.records()[-1] == "UPDATE 0 ABORTED"
    assert life.coordinator.counts.timed_out == 1


def test_a_transaction_is_aborted_at_its_time_out_and_not_before() -> None:
    life = Coordinated()
    least = life.begin(5000)
    life.add(least, A)
    life.world.wait(4.9)
    assert life.told == []
    life.world.wait(0.2)
    assert life.told == [(A, (0, 0), False, -1)]
    with pytest.raises(TransactionNotFound):
        life.end(least)
    life.end(least, commit=False)


def test_the_time_goes_on_after_a_crash() -> None:
    life = Coordinated()
    least = life.begin(10_000)
    life.add(least, A)
    life.world.wait(4)
    began = life.world.simulation.io.clock.wall_ms()
    life = Coordinated(life.crash())
    # The clock of the simulation begins anew: as if no time had passed, and never more than the whole time.
    passed = life.world.simulation.io.clock.wall_ms() - began
    left = min(10.0, 10.0 - (4000 + passed) / 1000)
    life.world.wait(left - 0.5)
    assert life.told == []
    life.world.wait(1)
    assert [each[2] for each in life.told] == [False]


def test_a_committed_transaction_does_not_time_out_later() -> None:
    life = Coordinated()
    least = life.begin(1000)
    life.add(least, A)
    life.silent.add(A)
    life.coordinator.end(least, commit=True)
    life.world.wait(10)
    life.silent.clear()
    life.world.wait(40)
    assert {each[2] for each in life.told} == {True}
    assert life.records()[-1] == "UPDATE 0 COMMITTED"


def test_a_decision_that_cannot_be_stored_leaves_the_transaction_open() -> None:
    life = Coordinated()
    least = life.begin(10_000)
    life.add(least, A)
    log = life.coordinator.log
    real, log.begin = log.begin, _refusing(life)  # type: ignore[method-assign]
    with pytest.raises(PersistenceFailure):
        life.end(least)
    with pytest.raises(PersistenceFailure):
        life.begin()
    assert life.told == []
    log.begin = real  # type: ignore[method-assign]
    life.end(least)
    assert life.told == [(A, (0, 0), True, -1)]
    assert life.coordinator.transactions == {}


def _refusing(life: Coordinated):  # type: ignore[no-untyped-def]
    def refuse(_record: object) -> object:
        future = life.world.simulation.loop.create_future()
        future.set_exception(InjectedFault("no room"))
        return future

    return refuse


def test_a_beginning_waits_for_room_first_come_first_served() -> None:
    life = Coordinated(most_active=2)
    first, second = life.begin(), life.begin()
    got: list[int] = []

    async def begin() -> None:
        got.append((await life.coordinator.begin(600_000, None))[1])

    waiting = [life.start(begin()) for _ in range(3)]
    life.world.wait(1)
    assert got == []
    life.end(second)
    life.world.wait(0.1)
    assert got == [2]
    life.end(first, commit=False)
    life.world.wait(0.1)
    assert got == [2, 3]
    life.world.wait(20)
    refusal = waiting[2].exception()
    assert isinstance(refusal, TooManyRequests)
    assert "maxActiveTransactionsPerCoordinator" in str(refusal)
    life.end(2)
    assert life.begin() == 4


def test_a_beginning_that_nobody_waits_for_takes_no_room() -> None:
    life = Coordinated(most_active=1)
    first = life.begin()
    gone = life.start(_begin(life, wanted=False))
    cancelled = life.start(_begin(life, wanted=True))
    life.world.wait(0.1)
    cancelled.cancel()
    life.world.wait(0.1)
    life.end(first)
    life.world.wait(0.1)
    assert isinstance(gone.exception(), NotAllowed)
    assert life.begin() == 1
    life.coordinator.check()


async def _begin(life: Coordinated, *, wanted: bool) -> None:
    await life.coordinator.begin(600_000, None, lambda: wanted)


def test_a_cancelled_beginning_is_a_transaction_that_times_out() -> None:
    life = Coordinated()
    request = life.start(_begin(life, wanted=True))
    life.world.simulation.loop.call_soon(request.cancel)
    life.world.wait(1)
    assert list(life.coordinator.transactions) == [0]
    assert life.begin() == 1
    life.world.wait(601)
    assert life.coordinator.transactions == {}


def test_too_many_participants_are_refused() -> None:
    life = Coordinated()
    least = life.begin()
    life.add(least, *(f"{A}-{number}" for number in range(9_999)))
    life.add_subscription(least, A, "s")
    with pytest.raises(NotAllowed, match="10000 topics and subscriptions"):
        life.add(least, B)


def test_another_owner_takes_over_and_the_former_one_sends_clients_away() -> None:
    life = Coordinated()
    least = life.begin()
    life.add(least, A)
    other = life.begin()
    life.add(other, B)
    life.silent.add(B)
    former = life.coordinator
    waiting = former.end(other, commit=True)
    life.world.wait(1)
    life.coordinator = life.open()
    with pytest.raises(TransactionCoordinatorNotFound, match="with id 0 not found!"):
        life.world.run(former.begin(1000, None))
    assert len(life.lost) == 1
    former.stop()
    life.world.wait(0.1)
    assert isinstance(waiting.exception(), TransactionCoordinatorNotFound)
    life.world.run(former.close())
    life.silent.clear()
    life.world.wait(1)
    assert life.coordinator.counts.committed == 1
    life.end(least, commit=False)
    assert life.begin() >= 2
    life.coordinator.check()


def test_orphans_of_ended_transactions_are_acknowledged() -> None:
    """A cursor's last state may be older than the last acknowledgements, or lack some."""
    life = Coordinated()
    least = life.begin()
    life.end(least)
    found = life.coordinator.ended[least].positions
    life.coordinator.log.acknowledge(found[:1])
    life = Coordinated(life.stop())
    assert life.coordinator.transactions == {}
    assert life.coordinator.ended == {}
    assert life.coordinator.log.cursor.backlog() == 0


def test_thousands_of_open_transactions_recover_and_end() -> None:
    life = Coordinated()
    coordinator = life.coordinator

    async def open_one() -> None:
        _most, least = await coordinator.begin(600_000, None)
        await coordinator.add_partitions(least, [A])

    for _ in range(3):
        for _ in range(1000):
            life.start(open_one())
        life.world.wait(1)
    assert len(coordinator.transactions) == 3000
    life = Coordinated(life.crash())
    assert len(life.coordinator.transactions) == 3000
    life.world.wait(700)
    assert len(life.told) == 3000
    assert life.coordinator.transactions == {}
    assert life.coordinator.low_water_mark() == 2999


@pytest.mark.parametrize("name", ["entries", "batched_entries"])
def test_the_log_of_apache_pulsar_is_gone_on_with(name: str) -> None:
    rows = [json.loads(line) for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()]
    entries = [
        bytes.fromhex(row["hex"])
        for row in rows
        if row["managed_ledger"] == "pulsar/system/persistent/__transaction_log_0"
    ]
    status: dict[int, TransactionStatus] = {}
    for record in (record for entry in entries for record in COORDINATOR_RECORDS.parse(entry)):
        status.setdefault(record.txnid_least_bits, OPEN)
        if record.HasField("new_status"):
            status[record.txnid_least_bits] = record.new_status
    life = Coordinated()
    former = life.coordinator
    former.stop()
    ledger = former.log.managed_ledger
    for entry in entries:
        ledger.append(entry, array("q", [0]), array("q", [len(entry)]), 1, len(entry), [[]])
    life.world.wait(1)
    life = Coordinated(life.crash())
    coordinator = life.coordinator
    assert coordinator.last_id == max(status)
    open_ones = {least for least, each in status.items() if each in (OPEN, COMMITTING, ABORTING)}
    assert coordinator.transactions.keys() == open_ones
    assert coordinator.ended.keys() == status.keys() - open_ones
    committed = {least for least, each in status.items() if each == COMMITTED}
    assert {least for least, each in coordinator.ended.items() if each.committed} == committed
    coordinator.check()
    assert life.begin() == max(status) + 1
    # They began in the future of the simulated clock, and last for ten minutes all the same.
    life.world.wait(700)
    assert coordinator.transactions == {}
    assert coordinator.log.cursor.backlog() == 0
