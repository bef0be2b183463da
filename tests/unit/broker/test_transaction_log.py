"""The log of coordinators and of pending acknowledgements: its bytes, commits, and what a replay finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from faulty_ledgers import FaultyLedgerStore
from simulated_io import SimulatedDisk
from world import SMALL, World

from magnetar.broker.transactions import BatchedWrites
from magnetar.broker.transactions.log import (
    COORDINATOR_RECORDS,
    PENDING_ACK_RECORDS,
    LogDamaged,
    LogFormat,
    RecordPosition,
    TransactionLog,
    open_log,
)
from magnetar.broker.transactions.records_pb2 import TransactionMetadataEntry as Entry
from magnetar.io.interfaces import Loop
from magnetar.ledger.interface import EntryTooLarge, LedgerStore
from magnetar.managed_ledger.errors import ManagedLedgerClosed, ManagedLedgerFenced, ManagedLedgerNotFound
from magnetar.managed_ledger.settings import ManagedLedgerSettings

VECTORS = Path(__file__).parents[2] / "vectors" / "transactions"
NAME = "pulsar/system/persistent/__transaction_log_0"
PLAIN = BatchedWrites()
BATCHED = BatchedWrites(enabled=True, max_records=3, max_bytes=1000, max_delay_seconds=0.05)
ONE_LEDGER = ManagedLedgerSettings()


def _unexpected(error: BaseException) -> None:
    raise error


class Opened:
    """A log in a world of its own."""

    def __init__(
        self,
        disk: SimulatedDisk | None = None,
        writes: BatchedWrites = PLAIN,
        settings: ManagedLedgerSettings = ONE_LEDGER,
        *,
        create: bool = True,
        wrap: Callable[[LedgerStore, Loop], LedgerStore] | None = None,
    ) -> None:
        self.world = World(disk, settings, wrap=wrap)
        self.lost: list[BaseException] = []
        self.log = self.open(writes, create=create)

    def open(self, writes: BatchedWrites, *, create: bool = True) -> TransactionLog[Entry]:
        world = self.world
        return world.run(
            open_log(
                world.simulation.io,
                world.managed,
                NAME,
                "transaction.subscription",
                COORDINATOR_RECORDS,
                writes,
                self.lost.append,
                create=create,
                properties={"max_local_txn_id": "-1"},
            )
        )

    def write(self, *ids: int) -> list[RecordPosition]:
        """Records of these ids at the same time."""
        futures = [self.log.begin(record(number)) for number in ids]
        self.world.wait(1)
        return [future.result() for future in futures]

    def found(self) -> list[tuple[int, RecordPosition]]:
        found: list[tuple[int, RecordPosition]] = []
        self.world.run(self.log.replay(lambda at, entry: found.append((entry.txnid_least_bits, at))))
        return found

    def ids(self) -> list[int]:
        return [number for number, _at in self.found()]


def record(number: int, text: str = "") -> Entry:
    entry = Entry(metadata_op=Entry.ADD_PARTITION, txnid_least_bits=number, max_local_txn_id=number)
    if text:
        entry.partitions.append(text)
    return entry


def vectors(kind: str) -> list[bytes]:
    rows = [
        json.loads(line)
        for name in ("entries", "batched_entries", "errors_entries")
        for line in (VECTORS / f"{name}.jsonl").read_text().splitlines()
    ]
    return [bytes.fromhex(row["hex"]) for row in rows if kind in row or f"Batched{kind}" in row]


def written(records: Sequence[Entry], writes: BatchedWrites) -> list[bytes]:
    """The entries that these records become."""
    opened = Opened(writes=writes)
    futures = [opened.log.begin(each) for each in records]
    opened.world.wait(1)
    entries = sorted({future.result()[:2] for future in futures})
    reader = opened.log.managed_ledger.reader
    return [opened.world.run(reader.read_one(position)).entry(0) for position in entries]


def test_entries_of_apache_pulsar_are_written_byte_for_byte() -> None:
    seen = set()
    for entry in vectors("TransactionMetadataEntry"):
        records = COORDINATOR_RECORDS.parse(entry)
        several = entry.startswith(b"\x0e\x01")
        writes = BatchedWrites(enabled=several)
        assert written(records, writes) == [entry]
        seen.add((several, len(records)))
    assert seen >= {(False, 1), (True, 1), (True, 2), (True, 3)}


def test_entries_of_pending_acknowledgements_are_written_byte_for_byte() -> None:
    seen = 0
    for entry in vectors("PendingAckMetadataEntry"):
        records = PENDING_ACK_RECORDS.parse(entry)
        if entry.startswith(b"\x0e\x01"):
            world = World()
            log = world.run(
                open_log(
                    world.simulation.io,
                    world.managed,
                    "public/default/persistent/t-s__transaction_pending_ack",
                    "__pending_ack_state",
                    PENDING_ACK_RECORDS,
                    BatchedWrites(enabled=True),
                    _unexpected,
                )
            )
            futures = [log.begin(each) for each in records]
            world.wait(1)
            (at,) = {future.result()[:2] for future in futures}
            assert world.run(log.managed_ledger.reader.read_one(at)).entry(0) == entry
            seen += 1
        else:
            assert records[0].SerializeToString() == entry
    assert seen > 10


def test_a_log_has_the_record_of_apache_pulsar() -> None:
    opened = Opened()
    ledger = opened.log.managed_ledger
    assert dict(ledger.properties) == {"max_local_txn_id": "-1"}
    assert opened.log.cursor.mark_delete == (ledger.ledgers.first_id(), -1)


def test_a_missing_log_is_not_created_unasked() -> None:
    with pytest.raises(ManagedLedgerNotFound):
        Opened(create=False)


def test_records_written_together_share_a_commit_and_keep_their_order() -> None:
    opened = Opened()
    positions = opened.write(*range(50))
    ledger_id = positions[0].ledger_id
    assert positions == [RecordPosition(ledger_id, number) for number in range(50)]
    assert opened.ids() == list(range(50))
    assert opened.log.records_written == 50


def test_an_append_returns_once_its_record_is_durable() -> None:
    opened = Opened()
    position = opened.world.run(opened.log.append(record(7)))
    again = Opened(opened.world.simulation.disk.power_cut())
    assert again.found() == [(7, position)]


@pytest.mark.parametrize("writes", [PLAIN, BATCHED])
def test_both_forms_are_read_whatever_the_setting_is(writes: BatchedWrites) -> None:
    opened = Opened(writes=BATCHED)
    opened.write(1, 2, 3, 4)
    opened = Opened(opened.world.crash(), PLAIN)
    opened.write(5, 6)
    opened = Opened(opened.world.crash(), writes)
    assert opened.ids() == [1, 2, 3, 4, 5, 6]


def test_a_batch_is_full_at_its_records_its_bytes_or_its_delay() -> None:
    opened = Opened(writes=BATCHED)
    ledger = opened.log.managed_ledger.ledgers.last()
    assert ledger is not None
    at = ledger.ledger_id
    assert opened.write(1, 2, 3, 4) == [
        (at, 0, 0, 3),
        (at, 0, 1, 3),
        (at, 0, 2, 3),
        (at, 1, 0, 1),
    ]
    futures = [opened.log.begin(record(number, "x" * 400)) for number in range(4)]
    futures.append(opened.log.begin(record(9, "x" * 2000)))
    futures.append(opened.log.begin(record(10)))
    opened.world.wait(0.04)
    assert [future.done() for future in futures] == [True] * 5 + [False]
    opened.world.wait(0.1)
    assert [future.result() for future in futures] == [
        (at, 2, 0, 2),
        (at, 2, 1, 2),
        (at, 3, 0, 2),
        (at, 3, 1, 2),
        (at, 4, 0, 1),
        (at, 5, 0, 1),
    ]
    assert opened.log.batches_written == 5
    assert opened.ids() == [1, 2, 3, 4, 0, 1, 2, 3, 9, 10]


def test_acknowledged_records_are_not_replayed() -> None:
    opened = Opened()
    positions = opened.write(1, 2, 3, 4)
    opened.log.acknowledge([positions[0], positions[2]])
    assert opened.ids() == [2, 4]
    assert opened.log.cursor.mark_delete == positions[0][:2]
    assert Opened(opened.world.stop()).ids() == [2, 4]


def test_a_batch_is_consumed_once_all_its_records_are_acknowledged() -> None:
    opened = Opened(writes=BATCHED)
    positions = opened.write(1, 2, 3)
    opened.log.acknowledge([positions[1]])
    opened = Opened(opened.world.stop(), BATCHED)
    assert opened.found() == [(1, positions[0]), (3, positions[2])]
    opened.log.acknowledge([positions[2], positions[0]])
    assert opened.log.cursor.mark_delete == positions[0][:2]
    assert opened.ids() == []


def test_a_batch_whose_acknowledged_records_were_not_stored_is_replayed_with_the_end() -> None:
    """Otherwise a replay would find how a transaction began, but not how it ended."""
    settings = ManagedLedgerSettings(max_batch_indexes_to_persist=0)
    opened = Opened(writes=BATCHED, settings=settings)
    begun, _open, added = opened.write(1, 2, 1)
    other, _also_open = opened.write(1, 4)
    (ended,) = opened.write(1)
    opened.log.acknowledge([begun, added, other, ended])
    again = Opened(opened.world.crash(), BATCHED, settings)
    assert again.ids() == [1, 2, 1, 1, 4, 1]
    first, second, third, fourth, fifth, sixth = [at for _number, at in again.found()]
    again.log.acknowledge([first, third, fourth, sixth])
    again.log.acknowledge([second])
    assert not again.log.cursor.is_consumed(*sixth[:2])
    again.log.acknowledge([fifth])
    assert again.log.cursor.mark_delete == sixth[:2]


def test_everything_up_to_a_record_is_acknowledged_at_once() -> None:
    opened = Opened(writes=BATCHED)
    positions = opened.write(1, 2, 3, 4, 5, 6, 7)
    opened.log.acknowledge_to(positions[4])
    assert opened.ids() == [4, 5, 6, 7]
    opened.log.acknowledge_to(positions[5])
    assert opened.ids() == [7]


def test_properties_go_with_each_new_ledger_and_ledgers_are_trimmed_only_then() -> None:
    opened = Opened(settings=SMALL)
    highest = -1

    def properties() -> dict[str, str]:
        return {"max_local_txn_id": str(highest)}

    for highest in range(12):
        opened.log.acknowledge(opened.write(highest))
    ledger = opened.log.managed_ledger
    assert ledger.ledgers.total_entries() == 12
    highest = 11
    opened.world.run(opened.log.keep_properties(properties))
    assert dict(ledger.properties) == {"max_local_txn_id": "11"}
    opened.world.wait(1)
    assert ledger.ledgers.total_entries() < 5
    for highest in range(12, 30):
        opened.log.acknowledge(opened.write(highest))
    again = Opened(opened.world.crash(), settings=SMALL)
    last = again.world.run(again.log.last_record())
    assert last is not None
    assert last.max_local_txn_id == 29
    assert 24 <= int(again.log.managed_ledger.properties["max_local_txn_id"]) <= 29


def test_an_empty_log_has_no_last_record() -> None:
    opened = Opened()
    assert opened.world.run(opened.log.last_record()) is None


def test_another_owner_ends_the_log() -> None:
    opened = Opened()
    opened.write(1)
    former = opened.log
    opened.log = opened.open(PLAIN)
    late = former.begin(record(2))
    opened.world.wait(5)
    assert isinstance(late.exception(), ManagedLedgerFenced)
    assert isinstance(former.begin(record(3)).exception(), ManagedLedgerFenced)
    assert len(opened.lost) == 1
    assert opened.ids() == [1]
    opened.world.run(former.close())
    assert opened.write(4)


def test_a_closed_log_has_written_everything_and_takes_nothing() -> None:
    opened = Opened(writes=BATCHED)
    waiting = opened.log.begin(record(1))
    opened.world.run(opened.log.close())
    assert waiting.result().batch_size == 1
    assert isinstance(opened.log.begin(record(2)).exception(), ManagedLedgerClosed)
    assert opened.lost == []
    opened.log = opened.open(PLAIN)
    assert opened.ids() == [1]


def test_a_deleted_log_is_gone() -> None:
    opened = Opened()
    opened.write(1)
    opened.world.run(opened.log.delete())
    with pytest.raises(ManagedLedgerNotFound):
        opened.open(PLAIN, create=False)


def test_a_record_that_is_too_large_fails_alone() -> None:
    stores: list[FaultyLedgerStore] = []

    def wrap(store: LedgerStore, loop: Loop) -> FaultyLedgerStore:
        stores.append(FaultyLedgerStore(store, loop))
        return stores[0]

    opened = Opened(wrap=wrap)
    stores[0].max_entry_bytes = 1000
    futures = [opened.log.begin(record(number, "x" * size)) for number, size in ((1, 1), (2, 1000), (3, 1))]
    opened.world.wait(1)
    assert isinstance(futures[1].exception(), EntryTooLarge)
    assert [number for number, at in opened.found()] == [1, 3]
    assert [at for _number, at in opened.found()] == [futures[0].result(), futures[2].result()]
    assert opened.lost == []


def test_a_damaged_entry_is_named() -> None:
    opened = Opened()
    (position,) = opened.write(1)
    damaged: LogFormat[Entry] = LogFormat(
        lambda entry: COORDINATOR_RECORDS.parse(b"\xff" + entry)[0], lambda _entry: ()
    )
    opened.log._form = damaged
    with pytest.raises(LogDamaged, match=f"{NAME}, entry {position.ledger_id}:0: not a record"):
        opened.found()
