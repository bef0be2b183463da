"""The transaction coordinators of this broker, and when they are loaded and closed.

Coordinator n belongs to the broker that owns the bundle of partition n of :data:`ASSIGN`; of these
partitions, only the names are used. A coordinator is loaded when a client connects to it. A coordinator that
has a log is also loaded without a client, because the end of a transaction may be incomplete.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from magnetar.broker.coordination.coordinator import MAX_LOCAL_TXN_ID, Coordinator
from magnetar.broker.coordination.participants import Participants
from magnetar.broker.coordination.transaction import coordinator_not_found
from magnetar.broker.namespaces.registry import make_coordinators
from magnetar.broker.ownership.contract import Asked, Bundle, Owner
from magnetar.broker.ownership.peers import Beside, PeerRefused, ask_object
from magnetar.broker.serving.topics import ServedTopics
from magnetar.broker.subscriptions.persistent import end_acks
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.transactions import TransactionSettings, TxnId, txn_text
from magnetar.broker.transactions.figures import BatchFigures
from magnetar.broker.transactions.log import COORDINATOR_RECORDS, open_log
from magnetar.errors import BrokerError, PartitionCountRefused, ServedElsewhere, ServiceNotReady
from magnetar.io.slices import each
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import finished, outcome, sleep, together
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.managed_ledger.owned_record import Tenure
from magnetar.metadata.interface import MetadataError, MetadataStore
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

if TYPE_CHECKING:
    from magnetar.client.connection import Connection
    from magnetar.io.interfaces import Task

log = logging.getLogger(__name__)

ASSIGN = TopicName.parse("persistent://pulsar/system/transaction_coordinator_assign")
"""The partitioned topic whose partitions determine the number of coordinators, and the broker of each."""
REST = "/admin/v3/transactions"
"""The path of transactions in the admin interface."""
OF_STANDALONE, OF_CLUSTER = 1, 16
"""The number of coordinators in new metadata of a standalone broker, and of a cluster."""
_CURSOR = "transaction.subscription"
_Open = tuple[str, str | None, TxnId]
"""An open transaction in a participant: the topic; the subscription, or None for the topic itself; and the
transaction's id."""
_KEEP_SECONDS = 15.0
"""The seconds between two searches for coordinators that no broker has loaded."""
_ASK_SECONDS = 30.0
_AT_ONCE = 16
_MOST_ASKED = 100
"""The maximum number of transactions of one coordinator about which one search asks another broker."""
_READY = "Ready"
_LOADED = "recoverStartTime"
"""The field of ``TransactionCoordinatorStats`` with the time when the coordinator was loaded. The value of
the field ``state`` is then :data:`_READY`."""


def log_name(number: int) -> str:
    """Returns the name of the managed ledger of a coordinator."""
    return f"{ASSIGN.namespace_name}/persistent/__transaction_log_{number}"


class Coordinators:
    """The coordinators that this broker has loaded, by number."""

    def __init__(
        self,
        topics: ServedTopics,
        metadata: MetadataStore,
        settings: TransactionSettings,
        beside: Beside | None,
    ) -> None:
        """:param beside: the other brokers of the cluster; None: the broker is standalone"""
        self._topics = topics
        self._io = topics.io
        self._metadata = metadata
        self._settings = settings
        self._beside = beside
        self.participants = Participants(
            topics,
            settings,
            None if beside is None else lambda: beside.client(topics.settings.addresses),
        )
        self.batches = BatchFigures()
        """The batches of the logs of all coordinators."""
        self.loaded: dict[int, Coordinator] = {}
        """The loaded coordinators, including those that are being closed."""
        self._tenures: dict[int, Tenure] = {}
        """The :class:`Tenure` of each coordinator that this broker has loaded or is loading, by its
        number."""
        self._tasks = TaskScope(self._io.loop, "transaction coordinators", owner_goes_on)
        self._loading: KeyedTasks[int, Coordinator] = KeyedTasks(self._tasks)
        self._closing: KeyedTasks[int, None] = KeyedTasks(self._tasks)
        self._keeping: Task[None] | None = None
        self._open: Mapping[_Open, None] = {}
        """The open transactions that the last search found: for a topic, the first one, which hides later
        messages; for a subscription, all open transactions."""
        topics.ownership.listen(self._lost)
        topics.unloads.closes_with.append(self.close_within)

    async def start(self) -> None:
        """Creates the metadata of coordinators if necessary, and starts to load coordinators that have a log.

        :raises MetadataError: the metadata cannot be read or written
        """
        settings = self._topics.settings
        count = OF_STANDALONE if self._beside is None else OF_CLUSTER
        await make_coordinators(self._metadata, ASSIGN, count, settings.cluster, settings.default_bundles)
        if self._keeping is None:
            self._keeping = self._tasks.start(self._keep(), "loading coordinators")

    async def count(self) -> int:
        """Returns the number of coordinators in the cluster."""
        return await self._topics.namespaces.partitions(ASSIGN)

    async def raise_count(self, count: int) -> None:
        """Raises the number of coordinators to ``count``.

        :raises PartitionCountRefused: at least ``count`` coordinators exist
        """
        if count <= await self._topics.namespaces.partitions_now(ASSIGN):
            raise PartitionCountRefused(
                "Number of transaction coordinators should be more than the current number of transaction "
                "coordinator"
            )
        await self._topics.namespaces.change_partitioned(ASSIGN, partitions=count)

    def get(self, number: int) -> Coordinator:
        """Returns a loaded coordinator.

        :raises TransactionCoordinatorNotFound: this broker has not loaded the coordinator; the client looks
            it up and connects again
        """
        found = self.loaded.get(number)
        if found is None or found.closed:
            raise coordinator_not_found(number)
        return found

    async def owner(self, number: int, asked: Asked = Asked.LOOK) -> Owner:
        """Returns the broker that serves a coordinator, or the broker to ask next.

        :raises ServiceNotReady: the owner is not known now
        """
        bundle = await self._topics.bundles.of_topic(ASSIGN.partition(number))
        return await self._topics.ownership.owner_of(bundle, asked)

    async def described(self, txn: TxnId) -> Mapping[str, object] | None:
        """Returns the fields of an open transaction from its coordinator, on this or another broker; see
        :meth:`magnetar.broker.coordination.transaction.CoordinatedTransaction.described`.

        :returns: the fields; None if the coordinator is not loaded, or the transaction has ended
        :raises ServiceNotReady: the coordinator cannot be found or asked now
        """
        number, least = txn
        owner = await self.owner(number, Asked.PLACE)
        if owner.here:
            coordinator = self.loaded.get(number)
            known = None if coordinator is None else coordinator.transactions.get(least)
            return None if known is None else known.described()
        try:
            return await ask_object(self._beside, owner, f"{REST}/transactionMetadata/{number}/{least}")
        except PeerRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise ServiceNotReady(
                f"{owner.broker_id} cannot report the state of transaction {txn_text(txn)}: {error}"
            ) from error

    # Loading

    async def connect(self, number: int) -> Coordinator:
        """Returns a coordinator of this broker, loaded if necessary.

        :raises TransactionCoordinatorNotFound: no coordinator has that number
        :raises ServiceNotReady: another broker serves the coordinator, or it cannot be loaded now
        """
        found = self.loaded.get(number)
        if found is not None and not found.closed:
            return found
        loading = self._loading.answer(number, lambda: self._load(number))
        return await outcome(self._io.loop, loading)

    async def _load(self, number: int) -> Coordinator:
        going = self._closing.get(number)
        if going is not None:
            await finished(self._io.loop, going)
        if not 0 <= number < await self._topics.namespaces.partitions_now(ASSIGN):
            raise coordinator_not_found(number)
        if self._topics.stopping:
            raise ServiceNotReady("The broker is stopping")
        name = ASSIGN.partition(number)
        bundle = await self._topics.bundles.of_topic(name)
        owner = await self._topics.ownership.owner_of(bundle, Asked.LOOK)
        if not owner.here:
            told = owner.addresses
            raise ServedElsewhere(f"{bundle} is served by {owner.broker_id}", told.http, told.http_tls)
        tenure = self._tenures[number] = Tenure(self._io.loop)
        if not self._topics.ownership.is_current(bundle, owner):
            raise _not_served(number)
        coordinator: Coordinator | None = None
        try:
            policies = await self._topics.policies.of_topic(name)
            opened = await open_log(
                self._io,
                self._topics.managed_ledgers,
                log_name(number),
                _CURSOR,
                COORDINATOR_RECORDS,
                self._settings.log_writes,
                partial(self._log_lost, number),
                properties={MAX_LOCAL_TXN_ID: "-1"},
                quorums=policies.quorums,
                tenure=tenure,
                figures=self.batches,
            )
            coordinator = Coordinator(
                self._io,
                self._topics.wheel,
                number,
                opened,
                self.participants.tell,
                lambda: (self._topics.settings.topic.transactions or self._settings).max_active,
                partial(self._failed, number),
            )
            await coordinator.recover()
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            if coordinator is not None:
                await self._close_quietly(coordinator)
            raise ServiceNotReady(f"Transaction coordinator {number} cannot be loaded: {error}") from error
        if tenure.ended or opened.lost or not self._topics.ownership.is_current(bundle, owner):
            await self._close_quietly(coordinator)
            raise _not_served(number)
        self.loaded[number] = coordinator
        log.info(
            "transaction coordinator loaded",
            extra={
                "coordinator": number,
                "open": len(coordinator.transactions),
                "last_id": coordinator.last_id,
                "ms": coordinator.recovery_ended_ms - coordinator.recovery_began_ms,
            },
        )
        return coordinator

    async def _keep(self) -> None:
        """Loads coordinators that have a log, without waiting for clients, for example after a crash."""
        while True:
            try:
                for loaded in list(self.loaded.values()):
                    loaded.log.managed_ledger.check_rollover()
                await self._load_missing()
                await self._abort_late()
            except (BrokerError, MetadataError) as error:
                log.warning("cannot look for transaction coordinators", extra={"error": str(error)})
            await sleep(self._io.loop, _KEEP_SECONDS)

    async def _load_missing(self) -> None:
        """Loads coordinators that are not loaded. The leader makes the owners load all of them. Every other
        broker loads only its own, because the leader may be a broker of Apache Pulsar, which loads none.
        """
        if self._topics.stopping:
            return
        missing = [number for number in range(await self.count()) if number not in self.loaded]
        if self._beside is not None and not self._beside.leadership.is_leader:
            held = self._topics.ownership.held()
            missing = [n for n in missing if any(ASSIGN.partition(n) in bundle for bundle in held)]
        await together(self._io.loop, missing, self._load_one, _AT_ONCE)

    async def _load_one(self, number: int) -> None:
        """Makes the owner of a coordinator's bundle load the coordinator if it has a log."""
        if not await self._topics.managed_ledgers.exists(log_name(number)):
            return
        try:
            if self._beside is None or (await self._is_owner(number)):
                await self.connect(number)
            else:
                await self._ask(number)
        except BrokerError as error:
            what = {"coordinator": number, "reason": str(error)}
            log.info("transaction coordinator not loaded; trying again", extra=what)

    async def _is_owner(self, number: int) -> bool:
        """Whether this broker owns the bundle of a coordinator."""
        try:
            return (await self.owner(number)).here
        except ServiceNotReady:
            return False

    async def _ask(self, number: int) -> None:
        """Connects to a coordinator at another broker, which loads the coordinator.

        :raises BrokerError: the coordinator cannot be loaded now
        """

        async def connect(connection: Connection) -> BaseCommand:
            command = BaseCommand(type=BaseCommand.TC_CLIENT_CONNECT_REQUEST)
            command.tcClientConnectRequest.tc_id = number
            request_id = command.tcClientConnectRequest.request_id = connection.wire.new_request_id()
            return await connection.ask(request_id, command, _ASK_SECONDS)

        answered = await self.participants.at_owner(str(ASSIGN.partition(number)), connect)
        answer = answered.tcClientConnectResponse
        if answer.HasField("error"):
            raise ServiceNotReady(answer.message)

    # Messages and acknowledgements that arrived after the end of their transaction

    async def _abort_late(self) -> None:
        """Aborts transactions that are open in topics or subscriptions, but have ended at their coordinators.

        A topic remembers ended transactions only in memory, and learns the low-water mark of a coordinator
        only when another transaction ends. So after a load of the topic, a late message can open its
        transaction again, which then stays open until another transaction ends. A late acknowledgement can
        open its transaction again at any time.
        """
        open_here: dict[_Open, None] = {}

        def look(topic: AnyTopic) -> None:
            if not isinstance(topic, Topic):
                return
            if topic.transactions is not None and topic.transactions.open:
                open_here[topic.full_name, None, next(iter(topic.transactions.open))] = None
            for subscription in topic.subscriptions.values():
                if subscription.pending is not None:
                    for txn in subscription.pending.open():
                        open_here[topic.full_name, subscription.name, txn] = None

        await each(self._io, "open transactions", list(self._topics.loaded.values()), look)
        before, self._open = self._open, open_here
        stayed: dict[int, list[_Open]] = {}
        for found in open_here:
            if found in before:
                stayed.setdefault(found[2][0], []).append(found)
        for number, waiting in stayed.items():
            try:
                ended = await self._ended(number, {txn[1] for _topic, _subscription, txn in waiting})
                for topic, subscription, txn in waiting:
                    if txn[1] in ended:
                        await self._abort_here(topic, subscription, txn)
            except BrokerError as error:
                log.info(
                    "cannot abort what transactions published or acknowledged late; trying again",
                    extra={"coordinator": number, "reason": str(error)},
                )

    async def _abort_here(self, name: str, subscription: str | None, txn: TxnId) -> None:
        """Aborts a transaction in a topic or a subscription of this broker.

        :raises BrokerError: the end cannot be stored now
        """
        topic = self._topics.loaded.get(name)
        if not isinstance(topic, Topic):
            return
        if subscription is None:
            if topic.transactions is not None:
                await topic.transactions.abort_late(txn)
        elif (found := topic.subscriptions.get(subscription)) is not None:
            await end_acks(found, txn, commit=False, low_water=-1)

    async def _ended(self, number: int, asked: AbstractSet[int]) -> AbstractSet[int]:
        """Returns those of the transactions ``asked`` that have ended completely, as their coordinator on
        this or another broker knows; empty if the coordinator is not loaded.

        :raises BrokerError: the coordinator cannot be found or asked now
        """
        if not 0 <= number < await self.count():
            return frozenset()
        owner = await self.owner(number, Asked.PLACE)
        if owner.here:
            found = self.loaded.get(number)
            if found is None or found.closed:
                return frozenset()
            return {least for least in asked if least <= found.last_id and least not in found.transactions}
        stats = await self._stats_of(owner, number)
        mark, last = ended_up_to(stats), last_given(stats)
        ended = {least for least in asked if least <= mark}
        # These are behind one that is open for long.
        between = sorted(least for least in asked if mark < least <= last)[:_MOST_ASKED]
        unknown = {least for least in between if not await self._is_known(owner, (number, least))}
        if unknown and _same_load(stats, await self._stats_of(owner, number)):
            # A coordinator that is not loaded knows none.
            ended |= unknown
        return ended

    async def _stats_of(self, owner: Owner, number: int) -> Mapping[str, object]:
        """Returns ``TransactionCoordinatorStats``; empty if the coordinator is not loaded."""
        query = {"coordinatorId": str(number)}
        try:
            return await ask_object(self._beside, owner, f"{REST}/coordinatorStats", query)
        except PeerRefused as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return {}
            raise

    async def _is_known(self, owner: Owner, txn: TxnId) -> bool:
        """Whether a coordinator at another broker knows a transaction; False also if the coordinator is not
        loaded."""
        try:
            await ask_object(self._beside, owner, f"{REST}/transactionMetadata/{txn[0]}/{txn[1]}")
        except PeerRefused as error:
            return error.status != HTTPStatus.NOT_FOUND
        return True

    # Leaving

    def _lost(self, bundle: Bundle | None) -> None:
        """Stops the coordinators of a lost bundle (None: all), so that they write nothing more, because
        another broker may have loaded them."""
        for number in self._within(bundle):
            self._disown(number)

    def _within(self, bundle: Bundle | None) -> Sequence[int]:
        return [number for number in self._tenures if bundle is None or ASSIGN.partition(number) in bundle]

    def _disown(self, number: int) -> None:
        tenure = self._tenures.get(number)
        if tenure is not None:
            tenure.end()
        coordinator = self.loaded.get(number)
        if coordinator is not None:
            coordinator.stop()
            coordinator.log.managed_ledger.disown()
            self._start_closing(number)

    def _log_lost(self, number: int, error: BaseException) -> None:
        """Closes a coordinator whose log accepts no more records."""
        coordinator = self.loaded.get(number)
        if coordinator is None:
            return
        log.warning("transaction coordinator lost", extra={"coordinator": number, "error": str(error)})
        coordinator.stop()
        self._start_closing(number)

    def _failed(self, number: int, work: str, error: BaseException) -> None:
        coordinator = self.loaded.get(number)
        what = {"coordinator": number, "work": work, "error": str(error) or type(error).__name__}
        log.error(
            "transaction coordinator failed because of an internal error; it is loaded again", extra=what
        )
        if coordinator is not None:
            coordinator.stop()
            self._start_closing(number)

    def _start_closing(self, number: int) -> Task[None]:
        return self._closing.start(number, lambda: self._close(number), "closing a coordinator")

    async def _close(self, number: int) -> None:
        coordinator = self.loaded.get(number)
        if coordinator is not None:
            await self._close_quietly(coordinator)
            del self.loaded[number]
            log.info("transaction coordinator closed", extra={"coordinator": number})
        self._tenures.pop(number, None)

    async def _close_quietly(self, coordinator: Coordinator) -> None:
        try:
            await coordinator.close()
        except (LedgerError, ManagedLedgerError, MetadataError) as error:
            # What it has acknowledged to clients is durable: the next opening recovers it.
            what = {"coordinator": coordinator.number, "error": str(error)}
            log.warning("cannot close the log of a transaction coordinator", extra=what)

    async def close_within(self, bundle: Bundle, seconds: float) -> None:
        """Closes the coordinators of a bundle that is being released; coordinators that are not closed in
        time are abandoned.

        :param seconds: the maximum time, in seconds
        """
        numbers = self._within(bundle)
        limit = partial(self._io.loop.call_later, max(seconds, 0.0))
        for number in numbers:
            loading = self._loading.get(number)
            if loading is not None:
                await finished(self._io.loop, loading, limit)
        closing = [(number, self._start_closing(number)) for number in numbers]
        for number, task in closing:
            tenure = self._tenures.get(number)
            if not await finished(self._io.loop, task, limit):
                self._disown(number)
            if tenure is not None:
                await tenure.over()

    async def close(self) -> None:
        """Closes all coordinators."""
        if self._keeping is not None:
            self._keeping.cancel()
        for _number, loading in self._loading.items():
            await finished(self._io.loop, loading)
        for task in [self._start_closing(number) for number in list(self.loaded)]:
            await finished(self._io.loop, task)
        await self.participants.close()


def ended_up_to(stats: Mapping[str, object]) -> int:
    """Returns the number up to which all transactions of a coordinator have ended; -1 if unknown.

    :param stats: ``TransactionCoordinatorStats``
    """
    if stats.get("ongoingTxnSize") == 0:
        # The mark of Apache Pulsar's broker is 0 while nothing is open.
        return last_given(stats)
    told = stats.get("lowWaterMark")
    return told if stats.get("state") == _READY and isinstance(told, int) else -1


def last_given(stats: Mapping[str, object]) -> int:
    """Returns the last number that a coordinator has assigned to a transaction; -1 if unknown.

    :param stats: ``TransactionCoordinatorStats``
    """
    told = stats.get("leastSigBits")
    # Otherwise it still reads its log.
    return told if stats.get("state") == _READY and isinstance(told, int) else -1


def _same_load(before: Mapping[str, object], after: Mapping[str, object]) -> bool:
    """Whether a coordinator stayed loaded between two of its statistics."""
    return after.get("state") == _READY and before.get(_LOADED) == after.get(_LOADED) is not None


def _not_served(number: int) -> ServiceNotReady:
    return ServiceNotReady(f"Transaction coordinator {number} is no longer served by this broker")
