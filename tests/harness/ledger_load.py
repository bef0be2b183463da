"""Processes that write ledgers to real bookies, and read them."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from pathlib import Path

from bookkeeper_servers import BookKeeperServers
from polling import until_true
from zookeeper_server import opened

from magnetar.io.interfaces import ConnectingNetwork
from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.authentication import AuthProvider
from magnetar.ledger.bookkeeper.bookie import BookieSettings
from magnetar.ledger.bookkeeper.bookies import BookiesSettings
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.ledger.bookkeeper.wire import VERSION_2, Wire
from magnetar.ledger.interface import LedgerClosed, LedgerError, LedgerFenced, LedgerWriter
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.metadata.zookeeper.store import ZooKeeperMetadataStore

REQUEST_SECONDS = 4.0
RUN = 20


class Process:
    """A client of its own, as another process would be."""

    def __init__(self, metadata: ZooKeeperMetadataStore, store: BookKeeperLedgerStore) -> None:
        self._metadata = metadata
        self.store = store

    @classmethod
    async def start(
        cls,
        servers: BookKeeperServers,
        folder: Path,
        network: ConnectingNetwork | None = None,
        prove: Callable[[Callable[[int], bytes]], AuthProvider] | None = None,
        wire: Wire = VERSION_2,
    ) -> Process:
        """:param network: by which bookies are reached; None: in plain text

        :param prove: how bookies are told who asks, given what makes random bytes; None: they are not
        """
        metadata = await opened(servers.metadata_store)
        loop = asyncio.get_running_loop()
        io = real_io(loop, folder)
        auth_provider = None if prove is None else prove(io.randomness.token)
        bookie = BookieSettings(REQUEST_SECONDS, wire=wire, auth_provider=auth_provider)
        bookies = BookiesSettings(bookie, quarantine=False)
        store = await BookKeeperLedgerStore.open_store(
            io,
            ResolvingStore(metadata, loop),
            BookKeeperSettings(bookies=bookies),
            network,
        )
        return cls(metadata, store)

    async def close(self) -> None:
        await self.store.close()
        await self._metadata.close()

    async def entries(self, ledger_id: int) -> list[bytes]:
        """All that there are when the ledger is recovered."""
        reader = await self.store.open(ledger_id, recover=True)
        found: list[bytes] = []
        while len(found) <= reader.metadata.last_entry_id:
            for run in await reader.read(len(found), 1 << 60, 1 << 20):
                found += [run.entry(index) for index in range(run.count)]
        return found


def payload(entry_id: int) -> bytes:
    return b"entry %d " % entry_id * 10


class Load:
    """Appends all the time, some entries ahead of what is durable; ``told`` is the last that was."""

    def __init__(self, writer: LedgerWriter) -> None:
        self.writer = writer
        self.told = -1
        self.failed: LedgerError | None = None
        self._next = 0
        self._stopping = False
        writer.set_listener(self)
        self._task = asyncio.ensure_future(self._run())

    def on_durable(self, _ledger_id: int, last_entry_id: int) -> None:
        assert self.failed is None
        assert self.told < last_entry_id < self._next
        self.told = last_entry_id

    def on_failed(self, _ledger_id: int, first_entry_id: int, reason: LedgerError) -> None:
        assert first_entry_id == self.told + 1
        self.failed = reason

    async def _run(self) -> None:
        while not self._stopping and self.failed is None:
            if self._next - self.told < 10 * RUN:
                entries = [payload(self._next + number) for number in range(RUN)]
                ends = array("q")
                for entry in entries:
                    ends.append((ends[-1] if ends else 0) + len(entry))
                starts = array("q", [0, *ends[:-1]])
                try:
                    self.writer.append(b"".join(entries), starts, ends, 0, RUN)
                except LedgerClosed:
                    # It has ended, and is about to say so.
                    return
                self._next += RUN
            await asyncio.sleep(0.001)

    async def more(self, count: int = 2000) -> None:
        """Returns when so many more entries are durable."""
        target = self.told + count
        await until_true(lambda: self.failed is not None or self.told >= target)
        assert self.failed is None, self.failed

    async def is_fenced(self) -> None:
        """Returns when it has heard of it."""
        await until_true(lambda: self.failed is not None)
        assert isinstance(self.failed, LedgerFenced)

    async def stop(self) -> None:
        self._stopping = True
        await self._task
