"""The four access modes of producers (PIP-68)."""

from __future__ import annotations

from collections import deque

from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import AccessMode, Producer, ProducerTopic
from magnetar.errors import ProducerBusy, ProducerFenced, ServiceNotReady
from magnetar.io.interfaces import Future
from magnetar.io.waiting import fail, settle

EPOCH_PROPERTY = "pulsar.topic.epoch"
"""The property of a managed ledger that stores the topic's epoch; the epoch rises with each exclusive
owner."""


class ExclusiveAccess:
    """The exclusive producer of a topic, if any, and the producers that wait for exclusive access."""

    def __init__(self, topic: ProducerTopic) -> None:
        self._topic = topic
        self.owner: Producer | None = None
        self._waiting: deque[tuple[Producer, Future[bool]]] = deque()
        self.epoch = topic.stored_epoch()
        self._changing = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def is_awaited(self) -> bool:
        """Whether a producer waits for exclusive access or is getting it."""
        return self._changing or bool(self._waiting)

    async def enter(self, producer: Producer) -> Future[bool] | None:
        """Requests access for a producer. Returns None if access is immediate; otherwise a future, which is
        True when the producer is admitted and False when it has left.

        The rules are Pulsar's (``AbstractTopic``), with one exception: a producer with an old epoch is
        refused before it fences others.

        :raises ProducerFenced: another producer has or had exclusive access, or waits for it
        :raises ProducerBusy: an exclusive producer is connected or waits
        :raises ServiceNotReady: another producer is becoming the owner; the client tries again
        """
        try:
            return await self._enter(producer)
        except BaseException:
            # The earlier instance of this producer may have been the last one that others waited for.
            self._grant_next()
            raise

    async def _enter(self, producer: Producer) -> Future[bool] | None:
        mode = producer.access_mode
        if self._changing:
            raise ServiceNotReady(self._told("Another producer is acquiring exclusive access"))
        if mode is AccessMode.Shared:
            if self.owner is not None:
                text = f"Topic has an existing exclusive producer: {self.owner.name}"
                raise ProducerBusy(self._told(text))
            if self._waiting:
                text = f"Producer {self._waiting[0][0].name} waits for exclusive access to the topic"
                raise ProducerBusy(self._told(text))
            return None
        others = [p for p in self._topic.producers.values() if p is not producer]
        self._check_epoch(producer, others)
        if mode is AccessMode.ExclusiveWithFencing:
            self._fail_waiting()
            for other in others:
                other.fenced = True
                self._topic.producers.remove(other)
            await self._become_owner(producer)
            return None
        if not others and self.owner is None:
            await self._become_owner(producer)
            return None
        if mode is AccessMode.Exclusive:
            name = self.owner.name if self.owner is not None else others[0].name
            kind = "exclusive" if self.owner is not None else "shared"
            raise ProducerFenced(self._told(f"Topic has an existing {kind} producer: {name}"))
        admitted = self._topic.loop.create_future()
        self._waiting.append((producer, admitted))
        return admitted

    def _check_epoch(self, producer: Producer, others: list[Producer]) -> None:
        if producer.topic_epoch is None or self.epoch is None:
            return
        if producer.topic_epoch < self.epoch:
            if self.owner is not None or others:
                name = self.owner.name if self.owner is not None else others[0].name
                raise ProducerFenced(self._told(f"Topic has an existing exclusive producer: {name}"))
            text = f"The producer's epoch {producer.topic_epoch} is older than the topic's epoch {self.epoch}"
            raise ProducerFenced(self._told(text))

    def _told(self, text: str) -> str:
        """Returns the text of a refusal, after recording it for the topic."""
        self._topic.hindered(Hindrance.EXCLUSIVE_PRODUCER, text)
        return text

    async def _become_owner(self, producer: Producer) -> None:
        """Makes a producer the owner once its epoch is stored; until then no other producer is admitted."""
        returning = producer.topic_epoch is not None and producer.topic_epoch == self.epoch
        if not returning:
            self._changing = True
            epoch = 0 if self.epoch is None else self.epoch + 1
            try:
                await self._topic.store_epoch(epoch)
            finally:
                self._changing = False
            self.epoch = epoch
        producer.topic_epoch = self.epoch
        self.owner = producer

    def forget(self, producer: Producer) -> None:
        """Removes a producer that is about to be replaced by its own reconnection; no other producer takes
        over."""
        if self.owner is producer:
            self.owner = None

    def leave(self, producer: Producer) -> None:
        """Removes a producer that has left. If no producer remains, the next waiting producer takes over."""
        self.forget(producer)
        for entry in [e for e in self._waiting if e[0] is producer]:
            self._waiting.remove(entry)
            settle(entry[1], False)
        self._grant_next()

    def _grant_next(self) -> None:
        if (
            self.owner is None
            and not self._changing
            and not self._topic.producers
            and self._waiting
            and not self._topic.closing
        ):
            waiting, admitted = self._waiting.popleft()
            self._changing = True
            self._topic.tasks.start(self._grant(waiting, admitted), "the grant of exclusive access")

    async def _grant(self, producer: Producer, admitted: Future[bool]) -> None:
        try:
            await self._become_owner(producer)
        except Exception as error:  # noqa: BLE001 - any error is reported to the waiting client
            self._changing = False
            fail(admitted, error)
            self._grant_next()
            return
        self._changing = False
        if producer.closed or self._topic.closing:
            settle(admitted, False)
            self.leave(producer)
            return
        self._topic.producers.admit(producer)
        settle(admitted, True)

    def _fail_waiting(self) -> None:
        while self._waiting:
            _producer, admitted = self._waiting.popleft()
            fail(admitted, ProducerFenced("Fenced by another producer"))

    def disconnect_waiting(self) -> None:
        """Refuses all waiting producers, because the topic is closing; their clients look the topic up
        again."""
        while self._waiting:
            _producer, admitted = self._waiting.popleft()
            fail(admitted, ServiceNotReady("Topic is temporarily unavailable"))
