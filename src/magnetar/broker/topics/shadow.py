"""A shadow topic: its own subscriptions on the ledgers of another topic, its source (PIP-180)."""

from __future__ import annotations

from array import array
from collections import deque
from typing import TYPE_CHECKING

from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.broker.publishing.replicated import SHADOW_REFUSES, PlacedPublish, ShadowAdmission
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import NotAllowed, PersistenceFailure, ServiceNotReady
from magnetar.managed_ledger.append import Append
from magnetar.managed_ledger.managed_ledger import ManagedLedger
from magnetar.managed_ledger.position import Position
from magnetar.managed_ledger.shadow_ledger import ShadowLedger
from magnetar.naming.replicators import source_of_producer
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.transactions.buffer import SnapshotStore


class ShadowTopic(Topic):
    """A topic that stores nothing: it learns positions from its source, and dispatches the entries that the
    source has stored.

    Entries that arrive in one turn of the loop are handled together, in their order. An entry in an unknown
    ledger waits, with all entries after it, until the record of the source has been read again.
    """

    managed_ledger: ShadowLedger
    _held: deque[Append]
    _taking: bool

    @property
    def source(self) -> TopicName:
        """The source topic."""
        return TopicName.from_path(self.managed_ledger.source)

    @property
    def schema_path(self) -> str:
        return self.source.schema_path

    async def check_source(self, snapshots: SnapshotStore) -> None:
        """Checks that no transaction has published to the source, because only the source knows which of its
        messages were aborted.

        :raises NotAllowed: a transaction has published to the source
        :raises BrokerError: the transaction buffer snapshots cannot be read now
        :raises LedgerError: the transaction buffer snapshots cannot be read now
        """
        if await snapshots.load(self.source) is not None:
            raise NotAllowed(
                f"{self.full_name} cannot be served: its source {self.source} has had transactions, and a "
                "shadow topic would show messages of aborted ones"
            )

    def follow_source(self) -> None:
        """Starts to dispatch the entries that the source receives; called once, when the topic is opened."""
        self._held = deque()
        self._taking = False
        self.managed_ledger.changed = self._source_changed

    async def prepare(self) -> None:
        """Renews only the checks of entries, because deduplication, entry metadata and compaction are done at
        the source.
        """
        self._look_at_entries()

    def _look_at_entries(self) -> None:
        self.admission = ShadowAdmission()

    def takes_announcements_of(self, producer: Producer) -> bool:
        # Until the source has all receipts, its cursor keeps the ledgers.
        return source_of_producer(self.settings.replicator_prefix, producer.name) == str(self.source)

    def publish(
        self, publish: Publish, buffer: bytes, starts: array[int], ends: array[int], size: int
    ) -> None:
        """Registers the position of an entry; the producer gets the receipt when the entry can be read here.

        :raises NotAllowed: the entry has no position
        :raises ServiceNotReady: the topic is closing, or was lost to another broker
        """
        if self.closing or self.fenced:
            raise ServiceNotReady("Topic is temporarily unavailable")
        if not isinstance(publish, PlacedPublish):
            raise NotAllowed(SHADOW_REFUSES)
        operation = Append(buffer, starts, ends, 0, 1, size, publish)
        operation.ledger_id, operation.first_entry_id = publish.position
        self._held.append(operation)
        self.rate_in.messages += publish.messages
        self.rate_in.bytes += size
        if not self.is_busy:
            self.busy()
        if not self._taking:
            # Not within the publishing call: its caller has to count pending entries first.
            self._taking = True
            self.loop.call_soon(self._take)

    def _take(self) -> None:
        self._taking = False
        taken: list[Append] = []
        held, ledger = self._held, self.managed_ledger
        while held and ledger.confirm((held[0].ledger_id, held[0].first_entry_id), held[0].size):
            taken.append(held.popleft())
        if taken:
            self.on_durable(taken)

    def _source_changed(self) -> None:
        """Reads the changed record of the source, because the source has other ledgers or was terminated."""
        self._take_or_refuse()
        for subscription in list(self.subscriptions.values()):
            if subscription.dispatcher is not None:
                subscription.read_more()
            if self.terminated:
                subscription.check_end_of_topic()

    def _take_or_refuse(self) -> None:
        self._take()
        if self._held:
            # The record may have been read before the entry's ledger was added: the entry is sent again
            # later.
            refused, self._held = list(self._held), deque()
            self.on_failed(refused, PersistenceFailure("the ledger of the source topic is not known yet"))

    async def terminate(self) -> Position:
        """Refuses to terminate a shadow topic.

        :raises NotAllowed: always
        """
        raise NotAllowed(f"{self.name} is a shadow topic: terminate its source {self.source} instead")

    def _let_go(self) -> None:
        super()._let_go()
        self.managed_ledger.changed = _nothing


def _nothing() -> None:
    """Does nothing; replaces the callback of a closed topic."""


def topic_class(managed_ledger: ManagedLedger) -> type[Topic]:
    """Returns the class of the topic on a managed ledger: the class of shadow topics, or the class of
    ordinary topics.
    """
    return ShadowTopic if isinstance(managed_ledger, ShadowLedger) else Topic
