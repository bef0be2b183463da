"""Model bookies, metadata that can be held up, and one client that writes to them."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

from faulty_metadata import FaultyMetadataStore
from ledger_stores import Listener, append
from model_bookie import ModelBookie
from simulated_io import simulated_io

from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import BookiesSettings
from magnetar.ledger.bookkeeper.digests import Digest, DigestType
from magnetar.ledger.bookkeeper.ledger_record import LedgerRecord
from magnetar.ledger.bookkeeper.ledgers import LedgerRecords, Versioned
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.ledger.bookkeeper.writer import BookKeeperWriter
from magnetar.ledger.interface import Quorums
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.metadata.passing_on import PassingOnStore, ResolvingStore

T = TypeVar("T")

REQUEST_SECONDS = 5.0
_FIRST_PORT = 3181


class HeldStore(PassingOnStore):
    """While it is held no put begins."""

    gate: Any = None

    async def _do(self, call: str, work: Callable[[], Awaitable[T]]) -> T:
        if call == "put" and self.gate is not None:
            await self.gate
        return await work()


class Server:
    """One bookie, on a port of its own."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.port = _FIRST_PORT + number
        self.bookie_id = f"localhost:{self.port}"
        self.model = ModelBookie(world.loop)
        self._listener: Any = None
        self.start()

    def start(self) -> None:
        world = self.world
        self._listener = world.run(world.simulation.host.listen("", self.port, self.model.factory))
        world.run(world.embedded.put(f"/ledgers/available/{self.bookie_id}", b""))

    def kill(self, *, forgotten: bool = True) -> None:
        """:param forgotten: its registration goes at once"""
        self._listener.close()
        self.model.drop_connections()
        if forgotten:
            self.world.run(self.world.embedded.delete(f"/ledgers/available/{self.bookie_id}"))

    def refuse(self, status: int) -> None:
        """Adds are answered so from now on."""

        def add(_flags: int, _key: bytes, body: bytes) -> tuple[int, int, int]:
            ledger_id, entry_id = struct.unpack_from(">qq", body)
            return status, ledger_id, entry_id

        self.model.add = add  # type: ignore[method-assign]

    def entries(self, ledger_id: int) -> dict[int, bytes]:
        ledger = self.model.ledgers.get(ledger_id)
        return ledger.entries if ledger is not None else {}


class World:
    def __init__(self, bookies: int = 3, settings: BookKeeperSettings | None = None, seed: int = 1) -> None:
        self.simulation = simulated_io(seed)
        self.loop = self.simulation.loop
        io = self.simulation.io
        self.embedded = self.run(EmbeddedMetadataStore.open_store(io, "metadata.db"))
        self.faulty = FaultyMetadataStore(self.embedded, self.loop)
        self.held = HeldStore(self.faulty)
        self.servers = [Server(self, number) for number in range(bookies)]
        self.records = LedgerRecords(self.embedded, self.loop)
        self.run(self.records.check_layout())
        settings = settings or BookKeeperSettings()
        largest = settings.bookies.bookie.max_frame_bytes
        bookie = BookieSettings(REQUEST_SECONDS, 2.0, 0.2, max_frame_bytes=largest)
        settings = settings._replace(bookies=BookiesSettings(bookie, quarantine=False))
        self.store: BookKeeperLedgerStore = self.run(
            BookKeeperLedgerStore.open_store(io, ResolvingStore(self.held, self.loop), settings)
        )

    def run(self, work: Any) -> Any:
        return self.loop.run_until(work)

    def writer(self, quorums: Quorums | None = None, **how: bool) -> tuple[BookKeeperWriter, Listener]:
        writer = self.run(self.store.create(quorums or Quorums(3, 3, 2), {"component": b"test"}, **how))
        listener = Listener()
        writer.set_listener(listener)
        return writer, listener

    def wait(self, seconds: float = 1.0) -> None:
        self.loop.run_for(seconds)

    def hold_metadata(self) -> None:
        self.held.gate = self.loop.create_future()

    def let_metadata_go(self) -> None:
        gate, self.held.gate = self.held.gate, None
        gate.set_result(None)

    def found(self, writer: BookKeeperWriter) -> Versioned:
        return self.run(self.records.read(writer.ledger_id))  # type: ignore[no-any-return]

    def ensemble(self, writer: BookKeeperWriter) -> list[Server]:
        """Of the last segment."""
        names = self.found(writer).record.segments[-1].ensemble
        return [self.server(name) for name in names]

    def server(self, bookie_id: str) -> Server:
        return next(each for each in self.servers if each.bookie_id == bookie_id)

    def change(self, writer: BookKeeperWriter, change: Callable[[LedgerRecord], LedgerRecord]) -> None:
        """What somebody else writes to the metadata."""
        found = self.found(writer)
        self.run(self.records.write(writer.ledger_id, change(found.record), found.version))

    def set(self, writer: BookKeeperWriter, **fields: Any) -> None:
        self.change(writer, lambda record: replace(record, **fields))

    def copies(self, writer: BookKeeperWriter, entry_id: int, digest: Digest | None = None) -> dict[str, int]:
        """The bookies that have an entry, each with what it says was confirmed; the digests are checked."""
        digest = digest or Digest(DigestType.CRC32C, b"")
        found = {}
        for server in self.servers:
            body = server.entries(writer.ledger_id).get(entry_id)
            if body is not None:
                said = digest.check(writer.ledger_id, entry_id, body)
                assert body[said.start :] == payload(entry_id)
                assert said.length == sum(len(payload(each)) for each in range(entry_id + 1))
                found[server.bookie_id] = said.last_add_confirmed
        return found


def payload(entry_id: int) -> bytes:
    return b"entry %d" % entry_id * (entry_id % 5)


def add(writer: BookKeeperWriter, count: int) -> None:
    """Appends the entries that follow."""
    first = writer._next
    append(writer, *(payload(entry_id) for entry_id in range(first, first + count)))
