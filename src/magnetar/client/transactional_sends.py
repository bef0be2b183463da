"""Sending messages in transactions: reports each outcome to the transaction, and holds messages back until
the topic is registered at the coordinator.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from magnetar.client.exceptions import Interrupted, InvalidTxnStatusError, PulsarException
from magnetar.client.message_id import MessageId
from magnetar.io.interfaces import Loop
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.protocol.errors import FrameError

if TYPE_CHECKING:
    from types import TracebackType

    from magnetar.client.outgoing_message import Done, MessageOptions, Pending
    from magnetar.client.transactions import OpenTransaction


class Tracked:
    """A callback for the outcome of a message; it informs the message's transaction first, then the
    sender.
    """

    __slots__ = ("_transaction", "done")

    def __init__(self, done: Done, transaction: OpenTransaction) -> None:
        self.done = done
        self._transaction: OpenTransaction | None = transaction
        transaction.begin_operation()

    def __call__(self, message_id: MessageId | None, error: PulsarException | None) -> None:
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.end_operation(error)
            self.done(message_id, error)


def tracked(done: Done, options: MessageOptions | None) -> Done:
    """Returns a callback that first informs the message's transaction of the outcome, and then calls
    ``done``; without a transaction, returns ``done``.
    """
    if options is None or options.transaction is None:
        return done
    return Tracked(done, options.transaction)


def is_of(told: Done, done: Done) -> bool:
    """Whether the callback ``told`` is ``done``, or is what :func:`tracked` returned for ``done``."""
    return told is done or (isinstance(told, Tracked) and is_of(told.done, done))


def taken_back(told: Done, topic: str) -> None:
    """Tells the message's transaction, if any, that the message was not sent: its sender was cancelled."""
    if isinstance(told, Tracked):
        told(None, Interrupted(f"{topic}: the sender of a message was cancelled before it was sent"))


class SendingMessage:
    """A context manager: while its block runs, the message counts as an operation in progress of the
    transaction.
    """

    __slots__ = ("_transaction",)

    def __init__(self, transaction: OpenTransaction) -> None:
        self._transaction = transaction

    def __enter__(self) -> None:
        self._transaction.begin_operation()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A message whose sender is cancelled may be underway, and then is an operation of its own.
        self._transaction.end_operation(error if isinstance(error, PulsarException) else None)


def note_failure(options: MessageOptions | None, error: PulsarException) -> None:
    """Informs the message's transaction, if any, that the message was refused."""
    if options is not None and options.transaction is not None:
        options.transaction.fail(error)


class HeldMessage(NamedTuple):
    """A message that waits until the topic is registered at the transaction's coordinator."""

    sequence_id: int
    content: bytes
    options: MessageOptions | None
    done: Done

    @property
    def transaction(self) -> OpenTransaction | None:
        return self.options.transaction if self.options is not None else None


class Gate:
    """Holds back the messages of one producer, in order, until the topic is registered at the coordinator of
    their transaction.
    """

    def __init__(
        self,
        loop: Loop,
        topic: str,
        place: Callable[[int, bytes, MessageOptions | None, Done], object],
        refuse: Callable[[Done, PulsarException], object],
        passed: Callable[[], object],
        elsewhere: Callable[[], bool],
    ) -> None:
        """:param place: sends a message, or adds it to a batch; if it raises an exception, the message does
            not count as pending

        :param refuse: reports an error to the callback of a message that cannot be sent
        :param passed: called once no message is held back any more
        :param elsewhere: returns whether the topic has migrated away from the cluster of the coordinators
        """
        self._elsewhere = elsewhere
        self._topic = topic
        self._place = place
        self._refuse = refuse
        self._passed = passed
        self._tasks = TaskScope(loop, topic, owner_goes_on)
        self._held: deque[HeldMessage] = deque()

    @property
    def holds(self) -> bool:
        """Whether messages are held back; if so, all later messages must wait behind them."""
        return bool(self._held)

    def add(self, sequence_id: int, content: bytes, options: MessageOptions | None, done: Done) -> None:
        """Sends a message as soon as the topic is registered at the coordinator of its transaction, and all
        earlier messages were sent.
        """
        held = HeldMessage(sequence_id, content, options, done)
        if self._held:
            self._held.append(held)
        elif held.transaction is None or self._elsewhere() or held.transaction.knows(self._topic):
            self._let_through(held)
        else:
            self._held.append(held)
            self._tasks.start(self._open(), "telling a coordinator of the topic")

    def refusal(self, transaction: OpenTransaction) -> PulsarException | None:
        """Returns the error with which messages of a transaction must fail; None: they can be sent."""
        if transaction.is_over:
            return over(transaction)
        return migrated(transaction, self._topic) if self._elsewhere() else None

    def check(self, transaction: OpenTransaction) -> None:
        """Checks a transaction before one of its entries is sent.

        :raises InvalidTxnStatusError: the topic is in another cluster than the transaction's coordinator
        """
        if self._elsewhere():
            raise migrated(transaction, self._topic)

    def _let_through(self, held: HeldMessage) -> None:
        try:
            self._place(*held)
        except PulsarException as error:
            held.done(None, error)

    async def _open(self) -> None:
        while self._held:
            transaction = self._held[0].transaction
            if transaction is not None and not (self._elsewhere() or transaction.knows(self._topic)):
                try:
                    await transaction.add_topic(self._topic)
                except PulsarException as error:
                    self._give_up(transaction, error)
                    continue
            if self._held:
                self._let_through(self._held.popleft())
        self._passed()

    def _give_up(self, transaction: OpenTransaction, error: PulsarException) -> None:
        failed = [held for held in self._held if held.transaction is transaction]
        for held in failed:
            self._held.remove(held)
            self._refuse(held.done, error)

    def take(self) -> list[HeldMessage]:
        """Returns and removes the messages that are held back."""
        held, self._held = list(self._held), deque()
        return held


def out_of_turn(pending: deque[Pending], sequence_id: int) -> Pending | None:
    """Removes and returns a message whose receipt arrived before the first message's receipt.

    Receipts can arrive out of order, because brokers store a producer's messages in transactions and its
    other messages concurrently.

    :param pending: messages without receipts, in the order in which they were sent
    :param sequence_id: the sequence id in the receipt
    :returns: the message; None: the message was sent twice, and this is its second receipt
    :raises FrameError: no message up to ``sequence_id`` belongs to a transaction, or ``sequence_id`` is
        higher than the ids of all pending messages
    """
    before = [each for each in pending if each.sequence_id <= sequence_id]
    if sequence_id > pending[-1].sequence_id or all(each.transaction is None for each in before):
        first = pending[0].sequence_id
        raise FrameError(f"the receipt for {sequence_id} arrived before the receipt for {first}")
    found = next((each for each in before if each.sequence_id == sequence_id), None)
    if found is not None:
        pending.remove(found)
    return found


def migrated(transaction: OpenTransaction, topic: str) -> InvalidTxnStatusError:
    """Returns the error for a transaction on a topic that has migrated to another cluster (PIP-188); the
    coordinator, in the former cluster, can neither commit nor abort the transaction on this topic.
    """
    return InvalidTxnStatusError(
        f"{topic} has migrated to another cluster, where transaction {transaction.id} is not known: abort "
        "it, and begin another one with a client of that cluster"
    )


def over(transaction: OpenTransaction) -> PulsarException:
    """Returns the error for a message whose transaction ended before the message could be sent again."""
    return InvalidTxnStatusError(
        f"transaction {transaction.id} has ended, or its time is over, before a message had its receipt; its "
        f"state is {transaction.state.name}"
    )
