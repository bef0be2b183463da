"""Realistic bugs that can be planted into the client of bookies, to show that the seeds find such.

Each is a context manager that changes the product's classes while it lasts; no product code knows of them.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from magnetar.ledger.bookkeeper import writer as writer_module
from magnetar.ledger.bookkeeper.adds import AddEncoder, AddRun, AddStream
from magnetar.ledger.bookkeeper.digests import Body, Digest
from magnetar.ledger.bookkeeper.frames import Flag
from magnetar.ledger.bookkeeper.hot_adds import Stripe, confirmed_through
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.question import LastEntries, Question
from magnetar.ledger.bookkeeper.recovery import RecoveryAdds, RecoveryParts, _Recovery
from magnetar.ledger.bookkeeper.writer import BookKeeperWriter
from magnetar.ledger.interface import DataDamaged, Quorums
from simulation.bookkeeper import faults, scenario, world
from simulation.replacing import replaced


def acknowledged_one_short() -> AbstractContextManager[None]:
    """An entry counts when one bookie less than its ack quorum has it."""

    def one_short(stripes: Sequence[Stripe], write: int, ack: int, first: int, end: int) -> int:
        return confirmed_through(list(stripes), write, max(1, ack - 1), first, end)

    return replaced(writer_module, "confirmed_through", one_short)


def _with(
    plant: Callable[[], AbstractContextManager[None]], quorums: Quorums, *likely: faults.Fault
) -> Callable[[], AbstractContextManager[None]]:
    """A bug in ledgers with these quorums, where hardly anything happens but what is likely to show it."""

    @contextmanager
    def planted() -> Iterator[None]:
        with ExitStack() as all_of_them:
            all_of_them.enter_context(replaced(world, "QUORUMS", (quorums,)))
            if likely:
                weights = {fault: 10 if fault in likely else 1 for fault in faults.FAULTS}
                all_of_them.enter_context(replaced(scenario, "FAULTS", weights))
            all_of_them.enter_context(plant())
            yield

    return planted


@contextmanager
def fenced_too_few() -> Iterator[None]:
    """Recovery fences one bookie, and only looks at the others."""
    read = _Recovery._read

    async def looking(self: _Recovery, first: int, count: int) -> list[Question]:
        fencing = self._asking
        self._asking = fencing._replace(flags=Flag.NONE, key=b"")
        try:
            return await read(self, first, count)
        finally:
            self._asking = fencing

    ask = LastEntries.ask

    async def ask_one(self: LastEntries) -> None:
        if self._asking.flags & Flag.FENCE:
            self._ensemble = self._ensemble[:1]
        await ask(self)

    with (
        replaced(LastEntries, "ask", ask_one),
        replaced(LastEntries, "covered", property(lambda self: bool(self.answers))),
        replaced(_Recovery, "_read", looking),
    ):
        yield


def confirmed_too_early() -> AbstractContextManager[None]:
    """An entry tells that the one before it is confirmed, which is only on its way."""
    add = AddEncoder.add

    def early(
        self: AddEncoder,
        run: AddRun,
        _confirmed: int,
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        first: int,
        count: int,
    ) -> None:
        add(self, run, run.last, buffer, starts, ends, first, count)

    return replaced(AddEncoder, "add", early)


@contextmanager
def ended_by_a_late_answer() -> Iterator[None]:
    """That a bookie failed is told once more when it has been replaced, and ends the writer."""
    on_not_added = BookKeeperWriter.on_not_added
    tell = AddStream.tell_not_added

    def tell_again(self: AddStream, status: int) -> None:
        writer = self.listener
        assert isinstance(writer, BookKeeperWriter)
        writer._loop.call_later(1.0, lambda: writer._over or writer.on_not_added(self, status))
        tell(self, status)

    def late(self: BookKeeperWriter, stream: AddStream, status: int) -> None:
        if all(place.stream is not stream for place in self._places):
            self.end(self._fenced("by a bookie that was replaced"))
        else:
            on_not_added(self, stream, status)

    with (
        replaced(AddStream, "tell_not_added", tell_again),
        replaced(BookKeeperWriter, "on_not_added", late),
    ):
        yield


@contextmanager
def trusts_one_empty_answer() -> Iterator[None]:
    """Recovery takes an entry as never written when the first bookie that answers has it not."""
    make = _Recovery.__init__

    def trusting(self: _Recovery, ledger_id: int, record: LedgerRecord, parts: RecoveryParts) -> None:
        make(self, ledger_id, record, parts)
        self._enough_missing = 1
        self._asking = self._asking._replace(enough_missing=1)

    def in_order(self: _Recovery, entry_id: int) -> list[str]:
        ensemble = self._record.ensemble_of(entry_id)
        return [ensemble[index] for index in self._record.write_set(entry_id)]

    with replaced(_Recovery, "__init__", trusting), replaced(_Recovery, "_bookies", in_order):
        yield


def takes_copies_for_damaged() -> AbstractContextManager[None]:
    """An entry that says that it is confirmed itself, as AutoRecovery's copies do, counts as changed."""
    check = Digest.check

    def strict(self: Digest, ledger_id: int, entry_id: int, body: bytes) -> Body:
        found = check(self, ledger_id, entry_id, body)
        if found.last_add_confirmed >= found.entry_id:
            raise DataDamaged(f"entry {found.entry_id} of ledger {ledger_id} says that it is confirmed")
        return found

    return replaced(Digest, "check", strict)


def told_by_a_recovery_that_may_end() -> AbstractContextManager[None]:
    """What recovery adds again tells what counts by now, on bookies that no metadata names."""
    add = RecoveryAdds.add

    def telling(self: RecoveryAdds, entry: Any) -> None:
        self._known = self.confirmed
        add(self, entry)

    return replaced(RecoveryAdds, "add", telling)


PLANTED: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "acknowledged one short": acknowledged_one_short,
    "acknowledged one short, 5/3/2": _with(acknowledged_one_short, Quorums(5, 3, 2)),
    "acknowledged one short, 3/2/2": _with(acknowledged_one_short, Quorums(3, 2, 2)),
    "fenced too few": _with(
        fenced_too_few,
        Quorums(3, 3, 1),
        faults.take_over_in_trouble,
        faults.cut_off,
        faults.cut_off_metadata,
    ),
    "confirmed too early": confirmed_too_early,
    "ended by a late answer": ended_by_a_late_answer,
    "trusts one empty answer": trusts_one_empty_answer,
    "takes copies for damaged": takes_copies_for_damaged,
    "told by a recovery that may end": _with(
        told_by_a_recovery_that_may_end,
        Quorums(2, 2, 2),
        faults.take_over_in_trouble,
        faults.crash_bookie,
        faults.crash_zookeeper,
    ),
}
