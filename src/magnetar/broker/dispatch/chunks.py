"""Sends the chunks of one message to one consumer of a shared subscription, as a consumer needs all of them
to reassemble the message (PIP-37; as Pulsar's ``SharedConsumerAssignor`` does since 2.11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from magnetar.broker.dispatch.contract import AnyConsumer
from magnetar.ledger.entry_run import EntryRun
from magnetar.managed_ledger.position import Position
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import chunks_follow, metadata_of

_MOST_MESSAGES = 10_000
"""The most messages with some chunks sent that are remembered, as a producer may never send the rest."""

_Message = tuple[str, str]
"""The producer's name and the uuid of the message."""


class ChunkHolders:
    """The consumers that got the first chunks of messages, and the chunks that wait for them."""

    def __init__(self) -> None:
        self._holders: dict[_Message, Any] = {}
        self.waiting: dict[Any, set[Position]] = {}
        """Waiting chunks by consumer."""

    def __iter__(self) -> Iterator[Position]:
        """Yields all waiting chunks."""
        return chain.from_iterable(self.waiting.values())

    def receiver(
        self, run: EntryRun, indexes: Sequence[int], offered: AnyConsumer
    ) -> tuple[AnyConsumer, int]:
        """Returns the consumer of the first of these entries, and how many it gets; 0: use :meth:`wait`.

        :param indexes: of entries in the run, at least one
        :param offered: the consumer for other entries, and for chunks of messages that no consumer has yet
        """
        consumer = self._of(run, indexes[0], offered)
        if not consumer.ready or consumer in self.waiting:
            return consumer, 0
        count = 1
        while count < len(indexes) and self._of(run, indexes[count], consumer) is consumer:
            count += 1
        return consumer, count

    def _of(self, run: EntryRun, index: int, offered: AnyConsumer) -> AnyConsumer:
        found = _chunk_at(run, index)
        if found is None:
            return offered
        message, first, _last = found
        holder = self._holders.get(message)
        if holder is None or (first and not holder.ready):
            self._holders.pop(message, None)
            if len(self._holders) >= _MOST_MESSAGES:
                del self._holders[next(iter(self._holders))]
            self._holders[message] = holder = offered
        return holder

    def sent(self, run: EntryRun, indexes: Sequence[int]) -> None:
        """Notes that these entries were sent; messages whose last chunk is among them are complete."""
        for index in indexes:
            found = _chunk_at(run, index)
            if found is not None and found[2]:
                self._holders.pop(found[0], None)

    def wait(self, consumer: AnyConsumer, position: Position) -> None:
        """Lets a chunk wait until its consumer is ready."""
        self.waiting.setdefault(consumer, set()).add(position)

    def take_ready(self) -> list[Position]:
        """Removes and returns the waiting chunks whose consumers are ready."""
        return [
            each for consumer in tuple(self.waiting) if consumer.ready for each in self.waiting.pop(consumer)
        ]

    def take_all(self) -> list[Position]:
        """Removes and returns all waiting chunks."""
        waiting, self.waiting = list(self), {}
        return waiting

    def left(self, consumer: AnyConsumer) -> set[Position]:
        """Called when a consumer has left: others may get its chunks. Returns those that waited."""
        self._holders = {message: each for message, each in self._holders.items() if each is not consumer}
        return self.waiting.pop(consumer, set())

    def discard(self, position: Position) -> None:
        """Called when a chunk was acknowledged."""
        if self.waiting:
            self._keep({each for each in self if each != position})

    def drop_through(self, last: Position) -> None:
        """Called when everything at or below a position was acknowledged."""
        if self.waiting:
            self._keep({each for each in self if each > last})

    def _keep(self, positions: set[Position]) -> None:
        kept = {consumer: waiting & positions for consumer, waiting in self.waiting.items()}
        self.waiting = {consumer: waiting for consumer, waiting in kept.items() if waiting}

    def clear(self) -> None:
        """Called when the cursor was moved."""
        self._holders.clear()
        self.waiting.clear()


def _chunk_at(run: EntryRun, index: int) -> tuple[_Message, bool, bool] | None:
    """Returns the message of a chunk, and whether it is the first and the last chunk; None: not a chunk."""
    try:
        metadata = metadata_of(run.buffer, run.starts[index], run.ends[index])
    except EntryError:
        # It is delivered as it is: the client reports what is wrong with it.
        return None
    if not metadata.HasField("chunk_id"):
        return None
    message = (metadata.producer_name, metadata.uuid)
    return message, metadata.chunk_id == 0, not chunks_follow(metadata)
