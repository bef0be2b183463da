"""The connected producers of one topic: how they are admitted, replaced and closed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

from magnetar.broker import events
from magnetar.broker.flow.limits import of_host
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.publishing.producer import Producer, ProducerTopic
from magnetar.errors import ProducerBusy, TopicTerminated
from magnetar.io.interfaces import Future
from magnetar.io.waiting import settle


class Producers(dict[str, Producer]):
    """The connected producers by name. A producer that waits for exclusive access is not among them."""

    def __init__(self, topic: ProducerTopic, caps: Callable[[], tuple[int, int]]) -> None:
        """:param topic: the topic that owns this object; only a weak reference to the topic is kept

        :param caps: returns the maximum number of clients' producers, and the maximum from one host; 0: no
            limit
        """
        super().__init__()
        self._topic = topic
        self._caps = caps
        self.remote = 0
        """The number of producers that belong to replicators of other clusters."""
        self.chunks_published = False
        """Whether a producer that has left published chunks."""
        self.waiters: list[Future[None]] = []
        """Futures that :meth:`drained` waits for."""

    def local(self) -> Collection[Producer]:
        """The producers of clients, to which limits and statistics apply; those of replicators of other
        clusters are left out."""
        if not self.remote:
            return self.values()
        return [each for each in self.values() if each.remote_cluster is None]

    # Producers that come

    async def add(self, producer: Producer) -> Future[bool] | None:
        """Admits a producer and returns None. With WaitForExclusive, returns a future, which is True when the
        producer is admitted and False when it has left.

        :raises ProducerBusy: the name is taken, or a limit is reached
        :raises ProducerFenced: another producer has exclusive access
        :raises ServiceNotReady: the topic is closing or lost; the client looks it up again
        :raises TopicTerminated: the topic is terminated
        """
        topic = self._topic
        topic.check_open()
        if topic.terminated and not topic.takes_announcements_of(producer):
            text = "Topic was already terminated"
            topic.hindered(Hindrance.TERMINATED, text)
            raise TopicTerminated(text)
        text = self._limit_reached_by(producer)
        if text:
            topic.hindered(Hindrance.MAX_PRODUCERS, text)
            raise ProducerBusy(text)
        while (known := self.get(producer.name)) is not None:
            await self._replace(known, producer)
            topic.check_open()
        admitted = await topic.access.enter(producer)
        topic.producer_came(producer)
        if topic.closing or topic.fenced:
            topic.access.leave(producer)
            topic.check_open()
        if admitted is None:
            self.admit(producer)
        return admitted

    def _limit_reached_by(self, producer: Producer) -> str:
        """Returns the error text for a limit that does not admit the producer, or an empty string.
        Replicators of other clusters are not limited."""
        if producer.remote_cluster is not None:
            return ""
        (most, most_of_host), local = self._caps(), self.local()
        if most and len(local) >= most and producer.name not in self:
            return f"Topic '{self._topic.full_name}' reached max producers limit"
        if most_of_host and of_host(producer.address, (each.address for each in local)) >= most_of_host:
            return f"Topic '{self._topic.full_name}' reached max same address producers limit"
        return ""

    async def _replace(self, known: Producer, producer: Producer) -> None:
        if producer.replaces(known):
            self._drop(known)
            self._topic.access.forget(known)
            return
        if known.connection is not producer.connection and not await known.connection.is_alive():
            # Its CLOSE_PRODUCER may still be waiting for the last publishes.
            self.remove(known)
            return
        full_name = self._topic.full_name
        text = f"Producer with name '{producer.name}' is already connected to topic '{full_name}'"
        self._topic.hindered(Hindrance.NAME_TAKEN, text)
        raise ProducerBusy(text)

    def admit(self, producer: Producer) -> None:
        """Lets the producer publish from now on; it may have waited for exclusive access."""
        self[producer.name] = producer
        if producer.remote_cluster is not None:
            self.remote += 1
        events.producer_came(self._topic.full_name, producer)

    # Producers that leave

    def _drop(self, producer: Producer) -> None:
        producer.closed = producer.apart = True
        self.chunks_published = self.chunks_published or producer.chunks.messages > 0
        if self.get(producer.name) is producer:
            del self[producer.name]
            events.producer_left(self._topic.full_name, producer)
            if producer.remote_cluster is None:
                self._topic.last_active = self._topic.clock.monotonic()
            else:
                self.remote -= 1
            self._topic.producer_left(producer)

    def remove(self, producer: Producer) -> None:
        """Removes a producer that has left or is being closed; a waiting producer may get exclusive
        access."""
        self._drop(producer)
        self._topic.access.leave(producer)

    def disconnect(self) -> None:
        """Closes all producers; their clients reconnect."""
        for producer in list(self.values()):
            self.remove(producer)
            self._dismiss(producer)
        self._topic.access.disconnect_waiting()

    def _dismiss(self, producer: Producer) -> None:
        departure = self._topic.departure
        if departure is None:
            producer.connection.close_producer(producer)
            return
        producer.connection.stop_producer(producer)
        departure.add(partial(producer.connection.close_producer, producer))

    async def close_in_order(self) -> None:
        """Closes all producers once all their receipts were sent, so that no client sends a stored message
        again."""
        producers = list(self.values())
        for producer in producers:
            producer.connection.stop_producer(producer)
        await self.drained(producers)
        for producer in producers:
            if not producer.closed:
                self.remove(producer)
                producer.connection.close_producer(producer)
        self._topic.access.disconnect_waiting()

    # Receipts

    async def drained(self, producers: Sequence[Producer]) -> None:
        """Waits until all entries that these producers published are durable or have failed."""
        while not self._topic.fenced and any(producer.pending for producer in producers):
            waiter = self._topic.loop.create_future()
            self.waiters.append(waiter)
            await waiter

    def wake(self) -> None:
        """Wakes callers of :meth:`drained`, after entries have become durable or have failed."""
        waiters, self.waiters = self.waiters, []
        for waiter in waiters:
            settle(waiter)

    def tick(self, seconds: float) -> None:
        """Updates the rates of the producers."""
        for producer in self.values():
            producer.rate_in.tick(seconds)
            producer.chunks.tick(seconds)
