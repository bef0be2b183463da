"""One owner deletes a managed ledger while the next one opens it: it goes whole, or stays whole.

The servers of the model ensemble hear of changes late, and lose answers: an owner may read for a while that
nobody has come after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from random import Random
from typing import Any

from several_sessions import SeveralSessions
from world import NAME, SMALL, STORE, Listener

from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.managed_ledger.entry_cache import EntryCacheSettings
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.managed_ledger.position import EARLIEST
from magnetar.metadata.interface import MetadataStore

_SEEDS = 40
_SETTLED_SECONDS = 60.0
"""All that was lost has been looked for by then."""


class _Race:
    """Of two owners, one seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._sessions = SeveralSessions()
        if self._random.random() < 0.8:
            self._sessions.server.spread(Random(seed), others=2)
        self._loop = self._sessions.loop
        store = EmbeddedLedgerStore.open_store(self._sessions.io, "ledgers", STORE)
        self._store = self._sessions.run(store)

    def _owner(self, metadata: MetadataStore) -> ManagedLedgerFactory:
        io = self._sessions.io
        return ManagedLedgerFactory(
            io, TimerWheel(io.loop), self._store, metadata, SMALL, EntryCacheSettings()
        )

    async def _some_time(self, work: Awaitable[Any]) -> None:
        await sleep(self._loop, self._random.random() * self._random.choice([0.01, 0.1, 3.0]))
        await work

    def run(self) -> str:
        """Who has won; what is left is as it was, or nothing is."""
        sessions, server = self._sessions, self._sessions.server
        first, second = (self._owner(sessions.session()) for _ in range(2))
        ledger = sessions.run(first.open(NAME, create=True))
        ledger.listener = Listener()
        names = [f"cursor-{number}" for number in range(self._random.randint(0, 6))]
        for name in names:
            sessions.run(first.open_cursor(ledger, name, EARLIEST, {}))
        server.losing = int(self._random.random() < 0.7)
        opening, deleting = (
            self._loop.create_task(self._some_time(work))
            for work in (second.open(NAME, create=False), ledger.delete())
        )
        self._loop.run_for(_SETTLED_SECONDS)
        server.losing = 0
        self._loop.run_for(_SETTLED_SECONDS)
        assert opening.done()
        assert deleting.done()
        root = f"/root{ledger.path}"
        left = sorted(path for path in server.nodes if path.startswith(root))
        if deleting.exception() is None:
            assert left == []
            return "deleted"
        assert isinstance(deleting.exception(), ManagedLedgerFenced)
        assert opening.exception() is None
        assert left == [root, *(f"{root}/{name}" for name in names)]
        return "kept"


def test_it_goes_whole_or_stays_whole() -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(_SEEDS):
        try:
            outcomes[_Race(seed).run()] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    assert min(outcomes["deleted"], outcomes["kept"]) > _SEEDS // 5
