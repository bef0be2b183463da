"""What clients of ledgers were told, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from simulated_bookkeeper import ROOT, SimulatedServers

from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, decoded, ledger_path
from magnetar.ledger.interface import EntryRun
from simulation.trace import Violation


@dataclass
class LedgerTruth:
    """One ledger. A new ledger has one writer, ever."""

    contents: list[bytes] = field(default_factory=list)
    """What was appended, whatever became of it."""
    acknowledged: int = -1
    confirmed: int = -1
    """The last entry that a reader was told is confirmed."""
    checked: int = -1
    """Up to this one it was seen that an ack quorum had them."""
    closed: tuple[int, int] | None = None
    """Last entry and length, as whoever closed or recovered it was told."""
    deleted: bool = False


class Truth:
    """:param servers: whose disks are looked into"""

    def __init__(self, servers: SimulatedServers) -> None:
        self._servers = servers
        self.ledgers: dict[int, LedgerTruth] = {}
        self._decoded: dict[int, tuple[bytes, LedgerRecord]] = {}
        self.acknowledged = 0
        """Entries of all ledgers."""
        self.recoveries = 0
        self.reads = 0

    def created(self, ledger_id: int) -> None:
        if ledger_id in self.ledgers:
            raise Violation(f"ledger {ledger_id} was made twice")
        self.ledgers[ledger_id] = LedgerTruth()

    def appended(self, ledger_id: int, first: int, payloads: Sequence[bytes]) -> None:
        truth = self.ledgers[ledger_id]
        if first != len(truth.contents):
            raise Violation(f"ledger {ledger_id}: entry {first} was given instead of {len(truth.contents)}")
        truth.contents += payloads

    def was_acknowledged(self, ledger_id: int, last: int) -> None:
        truth = self.ledgers[ledger_id]
        if not truth.acknowledged < last < len(truth.contents):
            raise Violation(f"ledger {ledger_id}: {last} was acknowledged after {truth.acknowledged}")
        if truth.closed is not None and last > truth.closed[0]:
            raise Violation(f"ledger {ledger_id} ended with {truth.closed[0]}, and {last} was acknowledged")
        self.acknowledged += last - truth.acknowledged
        truth.acknowledged = last
        self._check_quorum(ledger_id, truth, last, "acknowledged")

    def was_confirmed(self, ledger_id: int, last: int) -> None:
        """A reader was told so."""
        truth = self.ledgers[ledger_id]
        if last >= len(truth.contents):
            raise Violation(f"ledger {ledger_id}: {last} is said to be confirmed, and was never appended")
        if truth.closed is not None and last > truth.closed[0]:
            raise Violation(f"ledger {ledger_id} ended with {truth.closed[0]}, and {last} is confirmed")
        if last > truth.confirmed:
            truth.confirmed = last
            self._check_quorum(ledger_id, truth, last, "said to be confirmed")

    def was_closed(self, ledger_id: int, last: int, length: int) -> None:
        """By its writer, or whoever recovered it."""
        truth = self.ledgers[ledger_id]
        self.recoveries += 1
        if truth.closed is not None and truth.closed != (last, length):
            raise Violation(f"ledger {ledger_id} ended with {truth.closed}, and with {(last, length)}")
        truth.closed = (last, length)
        if last < max(truth.acknowledged, truth.confirmed):
            raise Violation(
                f"ledger {ledger_id} ended with {last}; {truth.acknowledged} was acknowledged, "
                f"{truth.confirmed} confirmed"
            )
        if last >= len(truth.contents) or length != sum(map(len, truth.contents[: last + 1])):
            raise Violation(f"ledger {ledger_id} ended with {last} and {length} bytes")

    def was_read(self, ledger_id: int, runs: Sequence[EntryRun]) -> None:
        contents = self.ledgers[ledger_id].contents
        self.reads += 1
        for run in runs:
            for index in range(run.count):
                entry_id = run.first_entry_id + index
                if entry_id >= len(contents) or run.entry(index) != contents[entry_id]:
                    raise Violation(f"entry {entry_id} of ledger {ledger_id} reads otherwise than written")

    def record(self, ledger_id: int) -> LedgerRecord | None:
        """What the metadata says now; None: the ledger is deleted."""
        path = ROOT + ledger_path(ledger_id)
        node = self._servers.zookeeper.model.nodes.get(path)
        if node is None:
            return None
        known = self._decoded.get(ledger_id)
        if known is None or known[0] != node.value:
            known = self._decoded[ledger_id] = (node.value, decoded(node.value, path))
        return known[1]

    def is_known(self, ledger_id: int, at: float) -> bool:
        """Whether no server of the metadata could say at that time that the ledger is not there."""
        model, path = self._servers.zookeeper.model, ROOT + ledger_path(ledger_id)
        return path not in model.nodes or model.all_know(path, at)

    def holders(self, record: LedgerRecord, ledger_id: int, entry_id: int) -> int:
        """How many bookies of an entry's write set have it on their disks."""
        ensemble = record.ensemble_of(entry_id)
        return sum(
            self._servers.of(ensemble[index]).model.has_durably(ledger_id, entry_id)
            for index in record.write_set(entry_id)
        )

    def _check_quorum(self, ledger_id: int, truth: LedgerTruth, last: int, what: str) -> None:
        record = self.record(ledger_id)
        if record is None:
            return
        for entry_id in range(truth.checked + 1, last + 1):
            found = self.holders(record, ledger_id, entry_id)
            if found < record.quorums.ack:
                raise Violation(
                    f"entry {entry_id} of ledger {ledger_id} is {what}, and on {found} bookies: {record}"
                )
        truth.checked = max(truth.checked, last)
