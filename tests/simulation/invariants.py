"""What must hold inside the broker after every step."""

from __future__ import annotations

from typing import Any

from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.invariants import BrokenInvariant
from simulation.broker import BrokerProcess
from simulation.limits import Limits
from simulation.model import Model, Position
from simulation.trace import Violation

_EVERY = 12
"""Steps between two looks."""
_STORE_EVERY = 4
"""Looks between two at the whole ledger store: what it holds is compared, ledger by ledger."""
_LARGEST_READ = 64 << 10
"""Bytes that one read brings, on the simulated network."""

_LARGEST_ENTRY = 200 << 10
"""Bytes of a full batch of Magnetar's own client: one entry may overshoot any limit of what is unsent."""


class Invariants:
    """Called after each step of the timeline."""

    def __init__(self, process: BrokerProcess, limits: Limits, model: Model, largest_batch: int) -> None:
        self._process = process
        self._limits = limits
        self._model = model
        self._largest_batch = largest_batch
        self._steps = 0
        self._life = 0
        self._confirmed: dict[str, Position] = {}
        self.looks = 0

    def __call__(self) -> None:
        self._steps += 1
        if self._steps % _EVERY == 0:
            service = self._process.service
            if service is not None:
                self.look(service)

    def look(self, service: Any) -> None:
        """:raises Violation: something does not hold"""
        try:
            self._look(service)
        except BrokenInvariant as broken:
            raise Violation(f"an object contradicts itself: {broken}") from broken

    def _look(self, service: Any) -> None:
        self.looks += 1
        if self._life != self._process.lives:
            self._life = self._process.lives
            self._confirmed.clear()
        self._memory(service)
        if self._process.store is not None and self.looks % _STORE_EVERY == 0:
            self._process.store.check()
        for topic in service.topics.loaded.values():
            self._topic(topic)

    def _memory(self, service: Any) -> None:
        for counted in (
            service.limits.publish_buffer,
            service.limits.partial_frames,
            service.limits.unsent,
            service.connections,
        ):
            counted.check()
        service.topics.shared_limits.dispatch.check()
        if service.topics.unacked_limit is not None:
            service.topics.unacked_limit.check()
        buffer = service.limits.publish_buffer
        connections = service.connections.all
        # The frame that a read completes may have begun in earlier reads.
        bound = service.settings.max_publish_buffer + _LARGEST_READ * (len(connections) + 1) + _LARGEST_ENTRY
        if not 0 <= buffer.used <= bound:
            raise Violation(f"publish buffer: {buffer.used} bytes, at most {bound}")
        pending = sum(connection.pending_publishes for connection in connections)
        if pending and not buffer.used:
            raise Violation(f"{pending} publishes pending, and no bytes of them")
        for connection in connections:
            unsent = connection.transport.get_write_buffer_size() if connection.transport is not None else 0
            if unsent > 9 * self._limits.outgoing_bytes + _LARGEST_ENTRY:
                raise Violation(f"{unsent} unsent bytes for {connection.address}")
            if connection.pending_publishes < 0:
                raise Violation(f"a connection with {connection.pending_publishes} pending publishes")
        cache = service.managed_ledgers.cache
        cache.check()
        if not 0 <= cache.used_bytes <= self._limits.cache.max_bytes:
            raise Violation(f"cache: {cache.used_bytes} bytes of {self._limits.cache.max_bytes}")
        partial = service.limits.partial_frames
        if not 0 <= partial.used <= service.settings.max_partial_frames * 3 // 2 + _LARGEST_READ:
            raise Violation(f"partial frames: {partial.used} bytes")

    def _topic(self, topic: AnyTopic) -> None:
        if not isinstance(topic, Topic):
            return
        topic.managed_ledger.check()
        topic.dispatch_rates.check()
        last = topic.managed_ledger.last_confirmed
        before = self._confirmed.get(topic.full_name, (-1, -1))
        if last < before:
            raise Violation(f"{topic.full_name}: confirmed up to {last}, and {before} before")
        self._confirmed[topic.full_name] = last
        model = self._model.topics.get(topic.full_name)
        if (
            model is not None
            and last < model.last_told
            and topic.managed_ledger.ledgers.exists(model.last_told)
        ):
            raise Violation(f"{topic.full_name}: ends at {last}, and {model.last_told} was told")
        for subscription in topic.subscriptions.values():
            self._subscription(subscription)

    def _subscription(self, subscription: Any) -> None:
        subscription.check()
        for consumer in subscription.consumers:
            if consumer.permits < -self._largest_batch:
                raise Violation(f"{consumer.name}: {consumer.permits} permits")

    def settled(self, service: Any) -> list[str]:
        """What is left although everybody has done all there was to do."""
        left = []
        if service.limits.publish_buffer.used:
            left.append(f"{service.limits.publish_buffer.used} bytes in the publish buffer")
        for connection in service.connections.all:
            if connection.pending_publishes:
                left.append(f"{connection.pending_publishes} pending publishes of {connection.address}")
        for topic in service.topics.loaded.values():
            for subscription in topic.subscriptions.values():
                cursor = subscription.cursor
                if subscription.durable and (backlog := cursor.backlog()):
                    places = f"marked {cursor.mark_delete}, read up to {cursor.read_position}"
                    left.append(f"a backlog of {backlog} in {subscription.name}, {places}")
        return left
