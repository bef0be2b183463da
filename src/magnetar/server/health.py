"""The health check: an entry goes all the way to the disk and is read back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from magnetar.broker.service import BrokerService
from magnetar.errors import MetadataFailure, PersistenceFailure, ServiceNotReady
from magnetar.io.mutex import Mutex
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.metadata.interface import MetadataError

_NAME = "pulsar/{cluster}/persistent/healthcheck"


class HealthCheck:
    """Has a managed ledger of its own; nobody subscribes to it, so that it is trimmed as it rolls."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._ledger: ManagedLedger | None = None
        self._waiting: Any = None
        self._mutex = Mutex(broker.io.loop)

    async def run(self) -> None:
        """:raises PersistenceFailure: an entry cannot be stored, or is read as something else

        :raises MetadataFailure: the metadata does not work
        :raises ServiceNotReady: the broker is stopping
        """
        if not self._broker.ready:
            raise ServiceNotReady("The broker is stopping")
        try:
            await self._store_and_read()
        except (LedgerError, ManagedLedgerError) as error:
            raise PersistenceFailure(f"Health check failed: {error}") from error
        except MetadataError as error:
            raise MetadataFailure(f"Health check failed: {error}") from error

    async def _store_and_read(self) -> None:
        async with self._mutex:
            if self._ledger is None:
                name = _NAME.format(cluster=self._broker.settings.cluster)
                self._ledger = await self._broker.managed_ledgers.open(name, create=True)
                self._ledger.listener = self
            token = self._broker.io.randomness.token(16)
            self._waiting = self._broker.io.loop.create_future()
            self._ledger.append(token, array("q", (0,)), array("q", (16,)), 1, 16, None)
            appended: Append = await self._waiting
            position = (appended.ledger_id, appended.first_entry_id)
            run = await self._ledger.reader.read(position, position, 1, 1)
            if run.entry(0) != token:
                raise PersistenceFailure("Health check read something else than it wrote")

    def on_durable(self, appends: Sequence[Append]) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(appends[-1])

    def on_failed(self, appends: Sequence[Append], error: Exception) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(error)

    def on_fenced(self) -> None:
        self._ledger = None
