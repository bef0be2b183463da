"""The contract of ledger stores, on Apache's bookies: the tests that all stores pass."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import pytest
from bookkeeper_servers import BookKeeperServers
from zookeeper_server import opened

from magnetar.io.real import real_io
from magnetar.ledger.bookkeeper.bookie import Bookie
from magnetar.ledger.bookkeeper.store import BookKeeperLedgerStore, BookKeeperSettings
from magnetar.ledger.interface import LedgerStore, Quorums
from magnetar.metadata.passing_on import ResolvingStore

sys.path.append(str(Path(__file__).parents[1] / "unit" / "ledger"))
from ledger_stores import Copies, in_version_3
from test_ledger_contract import *  # noqa: F403 - all of its tests, with other fixtures

VARIANTS = {
    "one copy, version 3": (Quorums(), in_version_3(BookKeeperSettings())),
    "three copies": (Quorums(3, 3, 2), BookKeeperSettings()),
    "striped": (Quorums(3, 2, 2), BookKeeperSettings()),
}


class _Younger:
    """A ledger store in which there are no ledgers that were there before."""

    def __init__(self, store: Any, older: Collection[int]) -> None:
        self._store = store
        self._older = older

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def ledger_ids(self) -> Sequence[int]:
        return [found for found in await self._store.ledger_ids() if found not in self._older]


@pytest.fixture
def most_told(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Returns how often bytes arrived: a bookie divides its answers as it likes, a slow one more finely."""
    reads = 0
    heard = Bookie.heard

    def counted(bookie: Bookie, link: Any, data: bytes) -> None:
        nonlocal reads
        reads += 1
        heard(bookie, link, data)

    monkeypatch.setattr(Bookie, "heard", counted)
    return lambda: reads


@pytest.fixture(params=list(VARIANTS))
def run(cluster: BookKeeperServers, request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs lives of a store, one after the other; ``kill`` ends each but the last without closing."""

    quorums, settings = VARIANTS[request.param]

    def run_lives(*lives: Callable[[LedgerStore], Awaitable[None]], kill: bool = False) -> None:
        older: list[int] = []

        async def scenario(life: Callable[[LedgerStore], Awaitable[None]], number: int) -> None:
            loop = asyncio.get_running_loop()
            metadata = await opened(cluster.metadata_store)
            store = await BookKeeperLedgerStore.open_store(
                real_io(loop, tmp_path), ResolvingStore(metadata, loop), settings
            )
            if number == 0:
                older.extend(await store.ledger_ids())
            await life(_Younger(Copies(store, quorums), older))  # type: ignore[arg-type]
            if kill and number < len(lives) - 1:
                return
            await store.close()
            await metadata.close()

        for number, life in enumerate(lives):
            asyncio.run(scenario(life, number))

    return run_lives
