"""The chunks of one message go to one consumer of a shared subscription: only who has all of them can put the
message together (PIP-37; as Pulsar's ``SharedConsumerAssignor`` has it since 2.11)."""

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
"""Of which some chunks were sent: what a producer did not finish is not remembered for ever."""

_Message = tuple[str, str]
"""Its producer's name, and its uuid."""


class ChunkHolders:
    """Who got the first chunks of which message, and which chunks wait because that one takes no more."""

    def __init__(self) -> None:
        self._holders: dict[_Message, Any] = {}
        self.waiting: dict[Any, set[Position]] = {}
        """Chunks that wait, by the consumer that is to get them."""

    def __iter__(self) -> Iterator[Position]:
        """Whatever waits."""
        return chain.from_iterable(self.waiting.values())

    def receiver(
        self, run: EntryRun, indexes: Sequence[int], offered: AnyConsumer
    ) -> tuple[AnyConsumer, int]:
        """Who gets the first one of these entries, and how many from it on; 0: it is to :meth:`wait`.

        :param indexes: of entries in the run, at least one
        :param offered: who gets what is no chunk, and chunks of messages that nobody has yet
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
        """These entries were sent: of whose message that was the last chunk nothing more comes."""
        for index in indexes:
            found = _chunk_at(run, index)
            if found is not None and found[2]:
                self._holders.pop(found[0], None)

    def wait(self, consumer: AnyConsumer, position: Position) -> None:
        """A chunk is to be sent to this consumer when it takes more."""
        self.waiting.setdefault(consumer, set()).add(position)

    def take_ready(self) -> list[Position]:
        """Chunks whose consumer takes more by now: they wait no longer."""
        return [
            each for consumer in tuple(self.waiting) if consumer.ready for each in self.waiting.pop(consumer)
        ]

    def take_all(self) -> list[Position]:
        """What waits, and waits no longer."""
        waiting, self.waiting = list(self), {}
        return waiting

    def left(self, consumer: AnyConsumer) -> set[Position]:
        """The consumer has gone: its chunks may go to anybody, those of this answer among them."""
        self._holders = {message: each for message, each in self._holders.items() if each is not consumer}
        return self.waiting.pop(consumer, set())

    def discard(self, position: Position) -> None:
        """It was consumed."""
        if self.waiting:
            self._keep({each for each in self if each != position})

    def drop_through(self, last: Position) -> None:
        """Everything at or below a position was consumed."""
        if self.waiting:
            self._keep({each for each in self if each > last})

    def _keep(self, positions: set[Position]) -> None:
        kept = {consumer: waiting & positions for consumer, waiting in self.waiting.items()}
        self.waiting = {consumer: waiting for consumer, waiting in kept.items() if waiting}

    def clear(self) -> None:
        """The cursor was moved."""
        self._holders.clear()
        self.waiting.clear()


def _chunk_at(run: EntryRun, index: int) -> tuple[_Message, bool, bool] | None:
    """Of which message an entry is a chunk, whether the first one, and whether the last; None: it is none."""
    try:
        metadata = metadata_of(run.buffer, run.starts[index], run.ends[index])
    except EntryError:
        # It is delivered as it is: the client says what is wrong with it.
        return None
    if not metadata.HasField("chunk_id"):
        return None
    message = (metadata.producer_name, metadata.uuid)
    return message, metadata.chunk_id == 0, not chunks_follow(metadata)
