"""New ledgers for one managed ledger: their ids ascend, and failures do not follow each other at once."""

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
"""Seconds; doubled from failure to failure, up to what Pulsar waits at once."""
_FRUITLESS = 3
"""Ledgers in a row that may fail with nothing durable in them before the entries count as the cause."""
_TRIES = 5
"""Ledgers asked for before one whose id follows the last is given up for this time."""


class LedgerCreation:
    """Makes the ledgers that one managed ledger lists.

    :param name: of the managed ledger
    :param last_id: the greatest id it ever listed, as far as is known; -1 for none
    :param delete: deletes a ledger that nothing names
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
        """From now on new ones have greater ids."""
        self.last_id = max(self.last_id, ledger_id)
        if self._fruitless < _FRUITLESS:
            self._pause = self._not_before = 0.0

    def count_failure(self, durable: int) -> bool:
        """Counts a failed ledger; returns whether it was one of several in a row that stored nothing.

        Then the next one is not made at once, and pauses grow as after :meth:`failed`. Bookies refuse an
        entry beyond their frame limit in every ledger, and a topic without pauses makes ledgers without end.

        :param durable: entries of that ledger that are durable
        """
        self._fruitless = 0 if durable else self._fruitless + 1
        if self._fruitless < _FRUITLESS:
            return False
        self.failed()
        return True

    def failed(self) -> None:
        """There is no new ledger: the next is not asked for at once."""
        self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        self._not_before = self._loop.time() + self._pause

    @property
    def seconds_left(self) -> float:
        """Until the next ledger should be asked for; 0 for now, at most :data:`_LONGEST_PAUSE`."""
        return max(0.0, self._not_before - self._loop.time())

    async def make(self, quorums: Quorums) -> LedgerWriter:
        """Makes a ledger that may follow the last one: positions are ordered by ledger id.

        :raises LedgerOutOfOrder: the store goes on giving ids that do not ascend
        :raises LedgerError: the store makes none
        """
        pause = _FIRST_PAUSE
        for left in reversed(range(_TRIES)):
            writer = await self._store.create(quorums, custom_metadata(self._name))
            if writer.ledger_id > self.last_id:
                return writer
            log.warning(
                "new ledger does not follow the last one, asking for another",
                extra={"managed_ledger": self._name, "ledger": writer.ledger_id, "last": self.last_id},
            )
            await self._delete(writer.ledger_id)
            if left:
                await sleep(self._loop, pause)
                pause *= 2
        raise LedgerOutOfOrder(f"{self._name}: no new ledger has an id above {self.last_id}")
