"""Creation of ledgers for one managed ledger, with ascending ids and a back-off after failures."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from magnetar.io.interfaces import Loop
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import LedgerOutOfOrder, LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.custom_metadata import custom_metadata

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
"""Seconds; pauses double from failure to failure up to this, which Pulsar waits at once."""
_FRUITLESS = 3
"""After this many ledgers in a row that failed with nothing durable, the entries count as the cause."""
_TRIES = 5
"""Ledgers created in one attempt to get an id above the last one."""


class LedgerCreation:
    """Creates the ledgers that one managed ledger lists.

    :param name: of the managed ledger
    :param last_id: the greatest id it ever listed, as far as known; -1: none
    :param delete: deletes a ledger that no record names
    """

    def __init__(
        self,
        loop: Loop,
        store: LedgerStore,
        name: str,
        last_id: int,
        delete: Callable[[int], Awaitable[None]],
    ) -> None:
        self._loop = loop
        self._store = store
        self._name = name
        self._delete = delete
        self.last_id = last_id
        self._pause = 0.0
        self._not_before = 0.0
        self._fruitless = 0

    def listed(self, ledger_id: int) -> None:
        """Notes a listed ledger: new ones must have greater ids."""
        self.last_id = max(self.last_id, ledger_id)
        if self._fruitless < _FRUITLESS:
            self._pause = self._not_before = 0.0

    def count_failure(self, durable: int) -> bool:
        """Counts a failed ledger; returns whether it was one of several in a row that stored nothing.

        In that case the next one is delayed, as after :meth:`failed`. Bookies refuse an entry above their
        frame limit in every ledger, and without pauses such a topic would create ledgers without end.

        :param durable: the number of durable entries of that ledger
        """
        self._fruitless = 0 if durable else self._fruitless + 1
        if self._fruitless < _FRUITLESS:
            return False
        self.failed()
        return True

    def failed(self) -> None:
        """Notes that no ledger could be created, which delays the next attempt."""
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._not_before = self._loop.time() + self._pause

    @property
    def seconds_left(self) -> float:
        """Seconds until the next attempt; 0: now, at most :data:`_LONGEST_PAUSE`."""
        return max(0.0, self._not_before - self._loop.time())

    async def make(self, quorums: Quorums) -> LedgerWriter:
        """Creates a ledger with an id above the last one, as positions are ordered by ledger id.

        :raises LedgerOutOfOrder: the store repeatedly returns ids that do not ascend
        :raises LedgerError: the store cannot create a ledger
        """
        pause = _FIRST_PAUSE
        for left in reversed(range(_TRIES)):
            writer = await self._store.create(quorums, custom_metadata(self._name))
            if writer.ledger_id > self.last_id:
                return writer
            log.warning(
                "id of the new ledger is not above that of the last one; creating another",
                extra={"managed_ledger": self._name, "ledger": writer.ledger_id, "last": self.last_id},
            )
            await self._delete(writer.ledger_id)
            if left:
                await sleep(self._loop, pause)
                pause *= 2
        raise LedgerOutOfOrder(f"{self._name}: no new ledger has an id above {self.last_id}")
