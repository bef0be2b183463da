"""What a connection is to its client: how far it has come, for whom it is, and what the client has opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any

from magnetar.broker.consumers.consumer import Consumer
from magnetar.broker.namespaces.lists import TopicList
from magnetar.broker.publishing.producer import OpeningProducer, Producer
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.security.principal import ANONYMOUS, Principal

_CLOSED_IDS_KEPT = 1000


class SessionState(Enum):
    """The stations of a connection, in their order."""

    NEW = 0
    """Nothing but CONNECT is taken."""
    CONNECTING = 1
    """It is asked who the client is; what it sends meanwhile waits."""
    OPEN = 2
    CLOSING = 3
    """Nothing of it counts any more; what was queued for the client is still written."""
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
    """Of one connection."""

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
        """:param carry_out: takes producers and consumers from their topics, one with each step"""
        self._carry_out = carry_out
        self.state = SessionState.NEW
        self.principal = ANONYMOUS
        self.authenticating: Any = None
        """What asks the client again who it is (``authenticating``); None: nobody asks."""
        self.handshake: Any = None
        """The task that asks who the client is, while CONNECTING."""
        self.host = ""
        self.address = ""
        """``host:port`` of the client."""
        self.client_version = ""
        self.protocol_version = 0
        self.supports_partial_producer = False
        self.supports_source_positions = False
        """As a replicator it takes receipts with source positions."""
        self.supports_entry_metadata = False
        """It takes what a broker wrote in front of entries."""
        self.producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer[BaseSubscription]] = {}
        self.opening_producers: dict[int, OpeningProducer] = {}
        self.opening_consumers: dict[int, object] = {}
        self.topic_watchers: dict[int, TopicList] = {}
        self._closed_producers: dict[int, None] = {}

    @property
    def ended(self) -> bool:
        """Whether nothing is taken of the client any more, nor queued for it."""
        return self.state is SessionState.CLOSING or self.state is SessionState.CLOSED

    def _move(self, state: SessionState) -> None:
        if state not in _FOLLOWING[self.state]:
            raise RuntimeError(f"a session that is {self.state.name} cannot be {state.name}")
        self.state = state

    def connecting(self) -> None:
        """CONNECT has come."""
        self._move(SessionState.CONNECTING)

    def open(self, principal: Principal, authenticating: Any = None) -> None:
        """It is known who the client is.

        :param authenticating: what asks it again; None: nobody does
        """
        self._move(SessionState.OPEN)
        self.principal = principal
        self.authenticating = authenticating

    def closing(self) -> None:
        """Ends it for the broker: what was opened takes and gets nothing more, whoever knows of it."""
        self._move(SessionState.CLOSING)
        self._release()

    def closed(self) -> None:
        """The client is gone."""
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
            # Until it is taken from its subscription others get what it would have got.
            consumer.permits = 0
        self._carry_out(_departures(producers, consumers))

    # Producers and consumers that go

    def stop_producer(self, producer: Producer) -> None:
        """Takes no more of it."""
        if self.producers.get(producer.producer_id) is producer:
            del self.producers[producer.producer_id]
        self.remember_closed(producer.producer_id)

    def remember_closed(self, producer_id: int) -> None:
        """SENDs that are still on their way for it are ignored, not punished."""
        self._closed_producers[producer_id] = None
        if len(self._closed_producers) > _CLOSED_IDS_KEPT:
            del self._closed_producers[next(iter(self._closed_producers))]

    def was_closed(self, producer_id: int) -> bool:
        """Whether a producer of that id was closed, not long ago."""
        return producer_id in self._closed_producers

    def forget_consumer(self, consumer: Consumer[Any]) -> None:
        if self.consumers.get(consumer.consumer_id) is consumer:
            del self.consumers[consumer.consumer_id]


def _departures(producers: Sequence[Producer], consumers: Sequence[Consumer[BaseSubscription]]) -> Steps:
    """Takes each from its topic, unless the topic has let go of it meanwhile."""
    for producer in producers:
        yield partial(producer.topic.remove_producer, producer)
    for consumer in consumers:
        if not consumer.closed:
            yield partial(consumer.subscription.remove, consumer)
