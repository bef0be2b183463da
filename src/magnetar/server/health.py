"""The health check: an entry goes all the way to the disk and is read back."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.service import BrokerService
from magnetar.errors import MetadataFailure, PersistenceFailure, ServiceNotReady
from magnetar.io.mutex import Mutex
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.single_appends import SingleAppends
from magnetar.metadata.interface import MetadataError

_ALONE = "pulsar/{cluster}/persistent/healthcheck"
_AMONG_OTHERS = "pulsar/{cluster}/{broker_id}/persistent/healthcheck"
"""In a namespace that no other broker may own."""


class HealthCheck:
    """Has a managed ledger of its own; nobody subscribes to it, so that it is trimmed as it rolls."""

    def __init__(self, broker: BrokerService, check: Callable[[], None] | None = None) -> None:
        """:param check: raises BrokerError when a store is known not to answer"""
        self._broker = broker
        self._check = check
        self._entries: SingleAppends | None = None
        self._mutex = Mutex(broker.io.loop)

    async def run(self) -> None:
        """:raises PersistenceFailure: an entry cannot be stored, or is read as something else

        :raises MetadataFailure: the metadata does not work
        :raises ServiceNotReady: the broker is stopping
        """
        if not self._broker.ready:
            raise ServiceNotReady("The broker is stopping")
        if self._check is not None:
            self._check()
        try:
            await self._store_and_read()
        except (LedgerError, ManagedLedgerError) as error:
            raise PersistenceFailure(f"Health check failed: {error}") from error
        except MetadataError as error:
            raise MetadataFailure(f"Health check failed: {error}") from error

    async def _store_and_read(self) -> None:
        async with self._mutex:
            if self._entries is None:
                own = self._broker.settings
                name = (_ALONE if own.alone else _AMONG_OTHERS).format(
                    cluster=own.cluster, broker_id=own.broker_id
                )
                ledger = await self._broker.managed_ledgers.open(name, create=True)
                self._entries = SingleAppends(self._broker.io.loop, ledger, self._lost)
            entries = self._entries
            token = self._broker.io.randomness.token(16)
            position = await entries.append_durably(token)
            run = await entries.ledger.reader.read(position, position, 1, 1)
            if run.entry(0) != token:
                raise PersistenceFailure("Health check read something else than it wrote")

    def _lost(self) -> None:
        self._entries = None
