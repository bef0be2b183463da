"""Side ledgers of a cursor: ledgers besides the ledger of its states, with data that can be rebuilt.

Properties of the cursor contain the ids of its side ledgers. The names of these properties are reserved for
the broker: users cannot set them, because the side ledgers are deleted with the cursor.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from magnetar.io.interfaces import Io
from magnetar.ledger.interface import LedgerError, LedgerStore, LedgerWriter, Quorums
from magnetar.managed_ledger.deletion_queue import DeletionQueue
from magnetar.managed_ledger.errors import ManagedLedgerClosed, ManagedLedgerError
from magnetar.managed_ledger.owned_record import perhaps_written
from magnetar.managed_ledger.settings import ManagedLedgerSettings
from magnetar.managed_ledger.single_entry import SingleEntries
from magnetar.metadata.interface import MetadataError

OWN_PREFIX = "magnetar."
"""The prefix of the names of properties that are reserved for the broker."""
_IN_FLIGHT = 8
"""The maximum number of entries of one ledger that are not durable yet."""
COMPACTION_CURSOR = "__compaction"
"""The cursor of compaction. The compacted ledger replaces all entries up to this cursor's mark-delete
position."""
COMPACTED_LEDGER = "CompactedTopicLedger"
"""The property of the compaction cursor with the id of the compacted ledger."""
_NAMING = (COMPACTED_LEDGER,)


def users_own(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns those properties of a cursor that users have set."""
    return {name: value for name, value in properties.items() if not name.startswith(OWN_PREFIX)}


def brokers_own(properties: Mapping[str, str]) -> dict[str, str]:
    """Returns those properties of a cursor that are reserved for the broker."""
    return {name: value for name, value in properties.items() if name.startswith(OWN_PREFIX)}


def ledgers_named(properties: Mapping[str, str]) -> set[int]:
    """Returns the ids of side ledgers in a cursor's properties; ignores properties without a list of ids."""
    found: set[int] = set()
    for value in brokers_own(properties).values():
        try:
            ledgers = json.loads(value)["ledgers"]
            found.update(each for each in ledgers if type(each) is int and each >= 0)
        except (ValueError, TypeError, KeyError):
            continue
    return found


class SideLedgers:
    """The side ledgers of one cursor, and the cursor properties that contain the ids of these ledgers.

    :param put: writes the cursor's record with the given properties of the broker, then sets
        :attr:`properties`
    """

    def __init__(
        self,
        io: Io,
        store: LedgerStore,
        settings: ManagedLedgerSettings,
        custom: Mapping[str, bytes],
        deletions: DeletionQueue,
        put: Callable[[dict[str, str]], Awaitable[None]],
    ) -> None:
        self.io = io
        self._store = store
        self._settings = settings
        self._custom = custom
        self._deletions = deletions
        self._put = put
        self.properties: dict[str, str] = {}
        """The broker's properties in the stored record."""
        self._doubtful: set[int] = set()
        """The ids of ledgers that the record may name, because the outcome of a write is unknown."""
        self.ended = False
        """Whether the cursor is closed or deleted, so that properties cannot change any more."""

    def use_quorums(self, quorums: Quorums) -> None:
        """Sets the quorums of ledgers created from now on."""
        self._settings = replace(self._settings, quorums=quorums)

    def described(self, name: str) -> Mapping[str, Any] | None:
        """Returns the content of a property; None if the property is missing or is not a JSON object."""
        try:
            found = json.loads(self.properties[name])
        except (KeyError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    async def write(self, entries: AsyncIterator[bytes]) -> int:
        """Writes entries to a new ledger, which is closed and durable when this returns; no property names
        the ledger yet.

        :return: the id of the new ledger
        :raises LedgerError: the ledger cannot be written; the incomplete ledger is deleted
        """
        writer = await self._store.create(self._settings.quorums, self._custom)
        try:
            await self._fill(writer, entries)
        except BaseException:
            await self.delete((writer.ledger_id,))
            raise
        return writer.ledger_id

    async def _fill(self, writer: LedgerWriter, entries: AsyncIterator[bytes]) -> None:
        singles = SingleEntries(self.io.loop, writer)
        waiting = 0
        async for entry in entries:
            waiting += 1
            if waiting < _IN_FLIGHT:
                singles.append(entry)
            else:
                await singles.append_durably(entry)
                waiting = 0
        await writer.close()

    async def read(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """Returns entries ``first`` to ``last`` (included) of a side ledger; ``last`` -1: to the ledger's
        end.

        :raises LedgerError: the ledger does not exist, is damaged, or belongs to another object
        """
        reader = await self._store.open(ledger_id, recover=False)
        try:
            for key, value in self._custom.items():
                if reader.metadata.custom.get(key) != value:
                    raise LedgerError(
                        f"ledger {ledger_id} belongs to another cursor: its {key} is not {value!r}"
                    )
            if last < 0:
                last = await reader.last_add_confirmed()
            found: list[bytes] = []
            while first + len(found) <= last:
                for run in await reader.read(first + len(found), last, self._settings.read_ahead_bytes):
                    found += [run.entry(index) for index in range(run.count)]
            return found
        finally:
            reader.close()

    async def name(self, name: str, described: Mapping[str, object] | None) -> None:
        """Writes or removes a property, then deletes the ledgers that no property names any more.

        :param described: the content of the property, whose ``ledgers`` are the ids of the ledgers that it
            names; None: the property is removed
        :raises MetadataError: the property was not written, or the outcome is unknown
        :raises ManagedLedgerError: the cursor is closed, or another broker owns it
        """
        before = ledgers_named(self.properties) | self._doubtful
        properties = {key: value for key, value in self.properties.items() if key != name}
        if described is not None:
            properties[name] = json.dumps(described, separators=(",", ":"))
        wanted = ledgers_named(properties)
        if self.ended:
            raise ManagedLedgerClosed("the cursor is closed")
        try:
            await self._put(properties)
        except (ManagedLedgerError, MetadataError) as error:
            if perhaps_written(error):
                self._doubtful |= wanted
            raise
        self._doubtful = set()
        await self.delete(before - wanted)

    async def delete(self, ledgers: Iterable[int]) -> None:
        """Deletes ledgers that no property names."""
        for ledger_id in sorted(ledgers):
            await self._deletions.delete(ledger_id)

    @property
    def all(self) -> Sequence[int]:
        """Returns the ids of the ledgers that the record names, or may name."""
        return sorted(ledgers_named(self.properties) | self._doubtful)


def owned_ledgers(properties: Mapping[str, int]) -> set[int]:
    """Returns the ids of compacted ledgers that the properties stored with a cursor's position name.

    These ledgers belong to the cursor, and are deleted with the cursor.
    """
    return {properties[name] for name in _NAMING if name in properties}
