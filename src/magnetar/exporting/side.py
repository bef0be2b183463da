"""One pair of stores: where topics are taken from, or go to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.service import BrokerService
from magnetar.io.interfaces import Io
from magnetar.io.wheel import TimerWheel
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.interface import LedgerStore
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.interface import MetadataStore


@dataclass
class OpenStores:
    """Opened, and served by nobody."""

    name: str
    """As people are told."""
    identity: str
    """The same for ever, and of no other stores."""
    cluster: str
    io: Io
    wheel: TimerWheel
    metadata: MetadataStore
    managed: ManagedLedgerFactory
    broker: BrokerService
    """It serves nobody; it knows the policies."""
    one_copy: bool
    """Entries are kept once, whatever policies say."""
    still_alone: Callable[[], None]
    """:raises NotExported: somebody else may serve its topics by now"""
    served_by: Sequence[str] = ()
    """What runs there and would have to be stopped; only where it is looked whether topics can go."""
    bookies: str = ""
    """Whose ledgers are on them, by the id that all of these clusters know; empty: nobody else's."""

    @property
    def ledgers(self) -> LedgerStore:
        return self.managed.store
