"""Acknowledgements of one consumer in transactions: sent with receipts, and undone by an abort."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from magnetar.client.acknowledging import Acknowledgements, words
from magnetar.client.attachment import Attachment
from magnetar.client.exceptions import PulsarException, server_exception
from magnetar.client.message_id import MessageId
from magnetar.client.receiving import Position, Taken
from magnetar.client.transactional_sends import migrated
from magnetar.client.wire import ConsumerEnd
from magnetar.io.interfaces import Future, Loop
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import fail, nobody_waits, settle
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandAck, MessageIdData

if TYPE_CHECKING:
    from magnetar.client.transactions import OpenTransaction

_U64 = 2**64
Batched = dict[Position, tuple[int, int]]
"""For each entry: the bit set of its acknowledged messages, and its number of messages; (0, 0) if the entry
is acknowledged as a whole."""


class _Group:
    """Acknowledgements of one iteration of the event loop, which are sent in one command; if the broker
    refuses, it refuses all of them.
    """

    def __init__(self) -> None:
        self.entries: Batched = {}
        self.waiting: list[Future[None]] = []


class TransactionalAcknowledgements:
    """The acknowledgements of one consumer in transactions."""

    def __init__(
        self,
        loop: Loop,
        attachment: Attachment[ConsumerEnd],
        subscription: str,
        *,
        acks: Acknowledgements,
        taken: Taken,
        redeliver: Callable[[], object],
    ) -> None:
        """:param acks: the acknowledgements outside of transactions

        :param redeliver: requests redelivery of all unacknowledged messages
        """
        self._loop = loop
        self._attachment = attachment
        self._subscription = subscription
        self._acks = acks
        self._taken = taken
        self._redeliver = redeliver
        self._tasks = TaskScope(loop, attachment.topic, owner_goes_on)
        self._groups: dict[OpenTransaction, _Group] = {}
        self._batched: dict[OpenTransaction, Batched] = {}
        """For each transaction that has not ended: the batches of which it acknowledges some messages."""
        self._cumulative: set[OpenTransaction] = set()

    def individual(
        self, transaction: OpenTransaction, message_id: MessageId, others: list[Position]
    ) -> Future[None]:
        """Acknowledges a message or an entry; returns a future of the broker's answer.

        :param others: the positions of the earlier chunks of a chunked message; otherwise empty
        :raises InvalidTxnStatusError: the transaction is not open
        """
        transaction.check_open()
        group = self._groups.get(transaction)
        if group is None:
            group = self._groups[transaction] = _Group()
            self._loop.call_soon(self._flush, transaction)
        for position in others:
            group.entries[position] = (0, 0)
        self._taken.acknowledged(message_id)
        position, index = message_id.position, message_id.batch_index()
        if index < 0:
            group.entries[position] = (0, 0)
            self._taken.settled(position)
        else:
            size = max(message_id.batch_size(), index + 1)
            group.entries[position] = (group.entries.get(position, (0, 0))[0] | 1 << index, size)
            self._note(transaction, position, 1 << index, size)
        return self._waiter(transaction, group.waiting)

    def cumulative(self, transaction: OpenTransaction, message_id: MessageId) -> Future[None]:
        """Acknowledges a message and all earlier messages; returns a future of the broker's answer.

        :raises InvalidTxnStatusError: the transaction is not open
        """
        transaction.check_open()
        self._flush(transaction)
        if transaction not in self._cumulative:
            self._cumulative.add(transaction)
            transaction.when_ended(lambda committed: self._cumulative_ended(transaction, committed=committed))
        position, index = message_id.position, message_id.batch_index()
        is_last = index + 1 >= message_id.batch_size()
        done = (1 << (index + 1)) - 1 if index >= 0 else 0
        waiting: list[Future[None]] = []
        answer = self._waiter(transaction, waiting)
        self._taken.settled_until(position if is_last else (position[0], position[1] - 1))
        ids = [_id_of(position, done, message_id.batch_size() if index >= 0 else 0)]
        self._start(self._send(transaction, CommandAck.Cumulative, ids, waiting))
        return answer

    def _waiter(self, transaction: OpenTransaction, waiting: list[Future[None]]) -> Future[None]:
        waiter: Future[None] = self._loop.create_future()
        # The transaction learns of a failure, also if the program does not wait.
        waiter.add_done_callback(nobody_waits)
        waiting.append(waiter)
        transaction.begin_operation()
        return waiter

    def _flush(self, transaction: OpenTransaction) -> None:
        group = self._groups.pop(transaction, None)
        if group is None:
            return
        ids = [_id_of(position, *batch) for position, batch in group.entries.items()]
        self._start(self._send(transaction, CommandAck.Individual, ids, group.waiting))

    def _start(self, sending: Coroutine[object, None, None]) -> None:
        self._tasks.start(sending, "acknowledging in a transaction")

    async def _send(
        self,
        transaction: OpenTransaction,
        kind: CommandAck.AckType,
        ids: list[MessageIdData],
        waiting: list[Future[None]],
    ) -> None:
        failure: PulsarException | None = None
        try:
            if self._attachment.elsewhere():
                raise migrated(transaction, self._attachment.topic)
            await transaction.add_subscription(self._attachment.topic, self._subscription)
            await self._attachment.until_attached()
            command = BaseCommand(type=BaseCommand.ACK)
            command.ack.consumer_id = self._attachment.id
            command.ack.ack_type = kind
            command.ack.message_id.extend(ids)
            command.ack.txnid_most_bits, command.ack.txnid_least_bits = transaction.id
            answered = await self._attachment.ask(self._attachment.connected_to(), _numbered(command))
            if answered.ackResponse.HasField("error"):
                failure = server_exception(answered.ackResponse.error, answered.ackResponse.message)
        except PulsarException as error:
            failure = error
        if failure is None:
            self._acks.sent += len(waiting)
        else:
            self._acks.failed += len(waiting)
        for waiter in waiting:
            if failure is None:
                settle(waiter)
            else:
                fail(waiter, failure)
            transaction.end_operation(failure)

    def _note(self, transaction: OpenTransaction, position: Position, done: int, size: int) -> None:
        """Records which messages of a batch the transaction acknowledges, so that they count as acknowledged
        after the commit.

        :param done: bit set of the messages of the batch that are acknowledged now
        :param size: the number of messages in the batch
        """
        batches = self._batched.get(transaction)
        if batches is None:
            batches = self._batched[transaction] = {}
            transaction.when_ended(lambda committed: self._ended(transaction, committed=committed))
        batches[position] = (batches.get(position, (0, 0))[0] | done, size)
        if not self._acks.remaining(position, size) & ~batches[position][0]:
            self._taken.settled(position)

    def _ended(self, transaction: OpenTransaction, *, committed: bool) -> None:
        for position, (done, size) in self._batched.pop(transaction).items():
            if committed:
                self._acks.done_elsewhere(position, done, size)

    def _cumulative_ended(self, transaction: OpenTransaction, *, committed: bool) -> None:
        self._cumulative.discard(transaction)
        if not committed and not self._attachment.closed and self._attachment.failure is None:
            # Apache Pulsar's brokers do not deliver them again by themselves.
            self._redeliver()


def _id_of(position: Position, done: int, size: int) -> MessageIdData:
    """Returns the id of a batch with the messages to acknowledge, or of a whole entry.

    :param done: bit set of the acknowledged messages of the batch

    :param size: the number of messages in the batch; 0: the entry is acknowledged as a whole
    """
    ledger_id, entry_id = position
    data = MessageIdData(ledgerId=ledger_id % _U64, entryId=entry_id % _U64)
    if size:
        data.batch_size = size
        data.ack_set.extend(words(((1 << size) - 1) & ~done))
    return data


def _numbered(command: BaseCommand) -> Callable[[int], BaseCommand]:
    def numbered(request_id: int) -> BaseCommand:
        command.ack.request_id = request_id
        return command

    return numbered
