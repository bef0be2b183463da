"""A record in the metadata store that only its owner changes."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.io.interfaces import Loop
from magnetar.io.turns import Turns
from magnetar.io.waiting import finished
from magnetar.managed_ledger.errors import ManagedLedgerFenced
from magnetar.metadata.interface import MUST_NOT_EXIST, BadVersion, MetadataStore


class OwnedRecord:
    """Writes one record, one write at a time, each on top of the last.

    :param version: what was read; somebody else's write since then is found out at the next put
    """

    def __init__(self, loop: Loop, metadata: MetadataStore, path: str, version: int = MUST_NOT_EXIST) -> None:
        self.path = path
        self.version = version
        self._loop = loop
        self._metadata = metadata
        self._turns = Turns(loop)

    async def put(self, encode: Callable[[], bytes], written: Callable[[], None] | None = None) -> None:
        """Durable when this returns.

        :param encode: gives the record as it is when its turn has come
        :param written: called before anybody else's turn

        :raises BadVersion: it was to be made and exists
        :raises ManagedLedgerFenced: somebody else wrote it
        """
        # A task of its own: a caller that is cancelled must not leave the version behind the store's.
        task = self._loop.create_task(self._put(encode, written))
        await finished(self._loop, task)
        task.result()

    async def _put(self, encode: Callable[[], bytes], written: Callable[[], None] | None) -> None:
        async with self._turns:
            try:
                node = await self._metadata.put(self.path, encode(), self.version)
            except BadVersion as error:
                if self.version == MUST_NOT_EXIST:
                    raise
                raise ManagedLedgerFenced(f"{self.path} was changed by somebody else") from error
            self.version = node.version
            if written is not None:
                written()
