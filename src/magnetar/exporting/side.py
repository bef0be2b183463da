"""One pair of stores, the source or the target of an export."""

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
    """Open stores without a serving broker."""

    name: str
    """The name for messages."""
    identity: str
    """A permanent unique id of the stores."""
    cluster: str
    io: Io
    wheel: TimerWheel
    metadata: MetadataStore
    managed: ManagedLedgerFactory
    broker: BrokerService
    """Does not serve clients; used for policies."""
    one_copy: bool
    """Entries are stored once, whatever the policies say."""
    still_alone: Callable[[], None]
    """:raises NotExported: a broker may serve the topics by now"""
    served_by: Sequence[str] = ()
    """Processes that would have to be stopped; only for a check."""
    bookies: str = ""
    """Id of the bookies, which is common to all clusters that share them; empty: not shared."""

    @property
    def ledgers(self) -> LedgerStore:
        return self.managed.store
