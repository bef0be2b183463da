"""The session of a connection: its state, its principal, and the objects that its client has opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from magnetar.broker.consumers.consumer import AnyConsumer, Consumer
from magnetar.broker.namespaces.lists import TopicList
from magnetar.broker.publishing.producer import OpeningProducer, Producer
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.io.interfaces import Task
from magnetar.security.authentication import ANONYMOUS, Principal

if TYPE_CHECKING:
    from magnetar.broker.connections.handlers.session import Authenticating

_CLOSED_IDS_KEPT = 1000
_MIGRATION_VERSION = 20


class SessionState(Enum):
    """The states of a connection, in order."""

    NEW = 0
    """The broker accepts only CONNECT."""
    CONNECTING = 1
    """The client is being authenticated; its other commands wait."""
    OPEN = 2
    CLOSING = 3
    """Commands of the client are ignored; queued frames are still written."""
    CLOSED = 4


_FOLLOWING = {
    SessionState.NEW: (SessionState.CONNECTING, SessionState.CLOSING, SessionState.CLOSED),
    SessionState.CONNECTING: (SessionState.OPEN, SessionState.CLOSING, SessionState.CLOSED),
    SessionState.OPEN: (SessionState.CLOSING, SessionState.CLOSED),
    SessionState.CLOSING: (SessionState.CLOSED,),
    SessionState.CLOSED: (),
}


Steps = Iterator[Callable[[], object]]


def _at_once(steps: Steps) -> None:
    for step in steps:
        step()


class Session:
    """The session of one connection."""

    __slots__ = (
        "_carry_out",
        "_closed_producers",
        "address",
        "authenticating",
        "client_version",
        "consumers",
        "handshake",
        "host",
        "opening_consumers",
        "opening_producers",
        "principal",
        "producers",
        "protocol_version",
        "state",
        "supports_entry_metadata",
        "supports_partial_producer",
        "supports_source_positions",
        "topic_watchers",
    )

    def __init__(self, carry_out: Callable[[Steps], None] = _at_once) -> None:
        """:param carry_out: removes producers and consumers from their topics, one per step"""
        self._carry_out = carry_out
        self.state = SessionState.NEW
        self.principal = ANONYMOUS
        self.authenticating: Authenticating | None = None
        """Authenticates the client again (``handlers.session``); None: authentication is disabled."""
        self.handshake: Task[None] | None = None
        """The task that authenticates the client in the state CONNECTING; otherwise None."""
        self.host = ""
        self.address = ""
        """``host:port`` of the client."""
        self.client_version = ""
        self.protocol_version = 0
        self.supports_partial_producer = False
        self.supports_source_positions = False
        """Whether the client is a replicator that accepts receipts with source positions."""
        self.supports_entry_metadata = False
        """Whether the client accepts broker entry metadata."""
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer[BaseSubscription]] = {}
        self.opening_producers: dict[int, OpeningProducer] = {}
        self.opening_consumers: dict[int, object] = {}
        self.topic_watchers: dict[int, TopicList] = {}
        self._closed_producers: dict[int, None] = {}

    @property
    def ended(self) -> bool:
        """Whether the session is closing or closed: no commands are accepted, and no more frames queued."""
        return self.state is SessionState.CLOSING or self.state is SessionState.CLOSED

    @property
    def greeted(self) -> bool:
        """Whether the client is authenticated."""
        return self.state is not SessionState.NEW and self.state is not SessionState.CONNECTING

    @property
    def follows_topics(self) -> bool:
        """Whether the client supports migration of a topic to another cluster."""
        return self.protocol_version >= _MIGRATION_VERSION

    def _move(self, state: SessionState) -> None:
        if state not in _FOLLOWING[self.state]:
            raise RuntimeError(f"a session cannot change from {self.state.name} to {state.name}")
        self.state = state

    def connecting(self) -> None:
        """Begins the session when CONNECT arrives."""
        self._move(SessionState.CONNECTING)

    def open(self, principal: Principal, authenticating: Authenticating | None = None) -> None:
        """Opens the session when the client is authenticated.

        :param authenticating: authenticates the client again; None: authentication is disabled
        """
        self._move(SessionState.OPEN)
        self.principal = principal
        self.authenticating = authenticating

    def read_more(self) -> None:
        """Sends more to the consumers, after the client has read the earlier frames."""
        for consumer in list(self.consumers.values()):
            consumer.subscription.read_more()

    def closing(self) -> None:
        """Ends the session in the broker: its producers and consumers send and receive nothing more."""
        self._move(SessionState.CLOSING)
        self._release()

    def closed(self) -> None:
        """Removes producers and consumers when the connection is closed."""
        self._move(SessionState.CLOSED)
        self._release()

    def _release(self) -> None:
        if self.handshake is not None:
            self.handshake.cancel()
            self.handshake = None
        if self.authenticating is not None:
            self.authenticating.stop()
        opening = [o.producer for o in self.opening_producers.values() if o.producer is not None]
        producers, consumers = [*self.producers.values(), *opening], list(self.consumers.values())
        self.producers.clear()
        self.consumers.clear()
        for consumer in consumers:
            # Until it is removed from its subscription other consumers get its messages.
            consumer.permits = 0
        self._carry_out(_departures(producers, consumers))

    # Producers and consumers that leave

    def stop_producer(self, producer: Producer) -> None:
        """Accepts no more SENDs of a producer."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
        self.remember_closed(producer.producer_id)

    def remember_closed(self, producer_id: int) -> None:
        """Remembers a closed producer, so that its SENDs in transit are ignored instead of ending the
        connection."""
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > _CLOSED_IDS_KEPT:
            del self._closed_producers[next(iter(self._closed_producers))]

    def was_closed(self, producer_id: int) -> bool:
        """Whether a producer of that id was closed recently."""
        return producer_id in self._closed_producers

    def forget_consumer(self, consumer: AnyConsumer) -> None:
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]


def _departures(producers: Sequence[Producer], consumers: Sequence[Consumer[BaseSubscription]]) -> Steps:
    """Yields steps that remove each producer and consumer from its topic, unless the topic has removed it."""
    for producer in producers:
        yield partial(producer.topic.producers.remove, producer)
    for consumer in consumers:
        if not consumer.closed:
            yield partial(consumer.subscription.remove, consumer)
