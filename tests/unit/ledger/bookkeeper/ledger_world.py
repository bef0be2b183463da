"""Model servers, and clients that open ledgers which were put on the bookies by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from model_bookie import ModelLedger
from simulated_bookkeeper import ZOOKEEPER, SimulatedServers
from simulated_io import SimulatedLoop, SimulatedNetwork, simulated_io

from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import Bookies, BookiesSettings, Use
from magnetar.ledger.bookkeeper.digests import Digest, DigestType, master_key
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord, Segment
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.placement import RandomPlacement
from magnetar.ledger.bookkeeper.reader import BookKeeperReader, LedgerOpening, OpeningParts, ReadSettings
from magnetar.ledger.interface import LedgerReader, Quorums
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.metadata.zookeeper.address import ensemble_address
from magnetar.metadata.zookeeper.session import Outside, SessionSettings
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

if TYPE_CHECKING:
    from magnetar.ledger.bookkeeper.writer import BookKeeperWriter


T = TypeVar("T")

REQUEST_SECONDS = 5.0
KEY = master_key(b"")


def payload(entry_id: int) -> bytes:
    return b"entry %d " % entry_id * (entry_id % 7 + 1)


def length(last: int) -> int:
    """Bytes of all entries up to ``last``."""
    return sum(len(payload(entry_id)) for entry_id in range(last + 1))


class Client:
    """A process that opens ledgers."""

    def __init__(self, world: World, name: str, settings: ReadSettings) -> None:
        self.world = world
        self.simulation = simulated_io(len(name), network=world.network, name=name)
        self.writers: dict[int, BookKeeperWriter] = {}
        self.fenced: list[int] = []
        world.loop.run_until(self.simulation.loop.create_task(self._start(settings)))

    async def _start(self, settings: ReadSettings) -> None:
        io = self.simulation.io
        outside = Outside(io.loop, io.clock, io.randomness, io.network)
        store = await ZooKeeperMetadataStore.open_store(
            outside, ensemble_address(ZOOKEEPER), SessionSettings(6000)
        )
        metadata = ResolvingStore(store, io.loop)
        self.records = LedgerRecords(metadata, io.loop)
        await self.records.check_layout()
        bookies = Bookies(io, metadata, settings=BookiesSettings(BookieSettings(REQUEST_SECONDS, 2.0, 0.2)))
        await bookies.start()
        self.opening = LedgerOpening(
            OpeningParts(
                io.loop,
                io.clock,
                self.records,
                lambda bookie_id: bookies.bookie(bookie_id, Use.READING),
                lambda bookie_id: bookies.bookie(bookie_id, Use.RECOVERING),
                RandomPlacement(bookies, io.randomness),
                self.writers.get,
                self.fenced.append,
                settings=settings,
            )
        )

    def start(self, work: Awaitable[T]) -> Any:
        """A task of this process."""
        return self.simulation.loop.create_task(work)  # type: ignore[arg-type]

    def open(self, ledger_id: int, *, recover: bool = True) -> BookKeeperReader:
        return self.world.run(self.start(self.opening.open(ledger_id, recover=recover)))  # type: ignore[no-any-return]

    def entries(self, reader: LedgerReader, first: int = 0, max_bytes: int = 1 << 20) -> list[bytes]:
        """All from ``first`` on that may be read."""

        async def all_of_them() -> list[bytes]:
            found: list[bytes] = []
            last = await reader.last_add_confirmed()
            while first + len(found) <= last:
                for run in await reader.read(first + len(found), 1 << 60, max_bytes):
                    assert run.first_entry_id == first + len(found)
                    found += [run.entry(index) for index in range(run.count)]
            return found

        return self.world.run(self.start(all_of_them()))  # type: ignore[no-any-return]


class World:
    """:param bookies: how many there are"""

    def __init__(self, bookies: int = 3, quorums: Quorums | None = None, seed: int = 1) -> None:
        self.loop = SimulatedLoop()  # type: ignore[abstract]
        self.network = SimulatedNetwork(self.loop, seed)
        self.servers = SimulatedServers(self.network, bookies)
        self.quorums = quorums or Quorums(3, 3, 2)
        self.clients = 0
        self.digest = Digest(DigestType.CRC32C, b"")

    def client(self, settings: ReadSettings | None = None) -> Client:
        self.clients += 1
        return Client(self, f"client{self.clients}", settings or ReadSettings())

    def run(self, work: Any) -> Any:
        return self.loop.run_until(work)

    def bookies(self, *numbers: int) -> tuple[str, ...]:
        return tuple(self.servers.bookies[number].bookie_id for number in numbers)

    def ledger(self, client: Client, *segments: tuple[int, tuple[int, ...]]) -> int:
        """An open ledger; of each segment the first entry, and the numbers of its bookies."""
        made = segments or ((0, tuple(range(self.quorums.ensemble))),)
        rows = tuple(Segment(first, self.bookies(*numbers)) for first, numbers in made)
        ledger_id, _ = self.run(client.start(client.records.make(LedgerRecord(self.quorums, rows))))
        return int(ledger_id)

    def found(self, client: Client, ledger_id: int) -> Versioned:
        return self.run(client.start(client.records.read(ledger_id)))  # type: ignore[no-any-return]

    def change(self, client: Client, ledger_id: int, **fields: Any) -> None:
        """What somebody else writes to the metadata."""
        found = self.found(client, ledger_id)
        record = replace(found.record, **fields)
        self.run(client.start(client.records.write(ledger_id, record, found.version)))

    def close(self, client: Client, ledger_id: int, last: int) -> None:
        found = self.found(client, ledger_id)
        closed = found.record.closed(last, length(last))
        self.run(client.start(client.records.write(ledger_id, closed, found.version)))

    def store(
        self,
        ledger_id: int,
        entry_ids: Iterable[int],
        numbers: Iterable[int],
        confirmed: int | None = None,
        *,
        copied: bool = False,
    ) -> None:
        """Puts entries on bookies.

        :param confirmed: that they say; None: each that the one before it is
        :param copied: by AutoRecovery, which lets them say what was confirmed when it came by
        """
        bookies = [self.servers.bookies[number].model for number in numbers]
        for entry_id in entry_ids:
            before = entry_id - 1 if confirmed is None else confirmed
            if not copied:
                before = min(before, entry_id - 1)
            data = payload(entry_id)
            head = self.digest.head(ledger_id, entry_id, before, length(entry_id), data)
            for bookie in bookies:
                bookie.ledgers.setdefault(ledger_id, ModelLedger(KEY)).entries[entry_id] = head + data

    def stored(self, ledger_id: int, number: int) -> dict[int, bytes]:
        """Bodies that a bookie has, by their entry id."""
        ledger = self.servers.bookies[number].model.ledgers.get(ledger_id)
        return ledger.entries if ledger is not None else {}
