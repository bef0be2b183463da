"""The broker's side of the communication with the compaction process: it sends questions at a limited pace,
and checks the answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from magnetar.broker.compaction import questions
from magnetar.broker.compaction.latest_messages import Copied, Entries
from magnetar.broker.compaction.questions import Beginning, EntryIds, Nonsense, Question, QuestionKind
from magnetar.io.interfaces import Cancellable, Clock, Io, Loop, Process, ProcessFailed
from magnetar.io.waiting import finished, nobody_waits, sleep
from magnetar.protocol.hot_compaction import PARTS

C = TypeVar("C")
T = TypeVar("T")
_KEPT_SECONDS = 10.0
"""How long, in seconds, the process is kept after a compaction, because the next compaction may start
soon."""
_ANSWER_SECONDS = 300.0
"""The time in seconds after which a process that has not answered counts as failed. The time is long because
the process may have to wait for a CPU."""
_LEAVE_SECONDS = 10.0
"""The timeout in seconds of the clean-up after a compaction. It is short because the next compaction repeats
a clean-up that failed."""
_MOST_MESSAGES = 1 << 31
"""The maximum number of messages in one entry that the metadata of a batch can state."""
_SPANS_AT_ONCE = 4_096
_RESTS = 3.0
"""Seconds of pause per second of work, so that at most one in four publishes is delayed."""
_LONGEST_SECONDS = 0.25
"""The longest pause between two steps, in seconds."""
_LATELY_SECONDS = 0.1
"""Clients count as publishing for this time after the last publish, in seconds."""


class Elsewhere:
    """The compaction process, which is started on demand and ended some seconds after the last compaction."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._process: Process | None = None
        self._ending: Cancellable | None = None

    async def begin(self, beginning: Beginning) -> LatestElsewhere:
        """Begins a compaction in the process; only one at a time.

        :raises ProcessFailed: the process does not answer
        :raises OSError: the process cannot be started
        """
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._process is None:
            # Imported late: most brokers compact nothing.
            from magnetar.broker.compaction.process import service

            self._process = self._io.start_process("compaction", service)
        latest = LatestElsewhere(self._io, self._process)
        await latest.begin(beginning)
        return latest

    def rest(self) -> None:
        """Reports that no compaction runs: the process ends soon unless another compaction begins."""
        if self._process is not None and self._ending is None:
            self._ending = self._io.loop.call_later(_KEPT_SECONDS, self.close)

    def close(self) -> None:
        """Ends the process. The next compaction starts another process."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        process, self._process = self._process, None
        if process is not None:
            process.close()


class PendingAnswer(Generic[T]):
    """The answer to a question that was sent to the compaction process."""

    def __init__(self, io: Io, process: Process, question: Question, opened: Callable[[bytes], T]) -> None:
        self._io = io
        self._opened = opened
        self._answer = process.ask(question)
        self._answer.add_done_callback(nobody_waits)

    async def answer(self, patience: float = _ANSWER_SECONDS) -> T:
        """Waits for the answer and returns it.

        :param patience: the time to wait, in seconds
        :raises ProcessFailed: no answer arrived, or an invalid one
        """
        limit = partial(self._io.loop.call_later, patience)
        if not await finished(self._io.loop, self._answer, limit):
            raise ProcessFailed(f"the compaction process did not answer within {patience:g} s")
        answer = self._answer.result()
        try:
            return self._opened(answer)
        except Nonsense as nonsense:
            raise ProcessFailed(f"the compaction process sent an unexpected answer: {nonsense}") from nonsense


class LatestElsewhere:
    """Makes the compaction process run the operations of ``LatestMessages``."""

    def __init__(self, io: Io, process: Process) -> None:
        self._io = io
        self._process = process
        self.count = 0
        """The number of messages that have a number, according to the answers so far."""
        self.kept = 0
        """The number of messages that compaction keeps."""

    def _ask(self, question: Question, opened: Callable[[bytes], T]) -> PendingAnswer[T]:
        return PendingAnswer(self._io, self._process, question, opened)

    async def _done(self, question: Question, patience: float = _ANSWER_SECONDS) -> None:
        await self._ask(question, partial(questions.opened_counts, expected=0)).answer(patience)

    async def _count(self, question: Question) -> int:
        return (await self._ask(question, partial(questions.opened_counts, expected=1)).answer())[0]

    async def begin(self, beginning: Beginning) -> None:
        await self._done(questions.begin(beginning))

    def number(self, entries: Entries) -> PendingAnswer[int]:
        """Asks the process to give numbers to the messages of these entries; the answer is how many messages
        have a number by then."""
        return self._ask(questions.number(entries), partial(self._numbered, entries.count))

    def _numbered(self, entries: int, answer: bytes) -> int:
        count = questions.opened_counts(answer, 1)[0]
        if not 0 <= count - self.count <= entries * _MOST_MESSAGES:
            raise Nonsense(
                f"the number of messages cannot go from {self.count} to {count} with {entries} more entries"
            )
        self.count = count
        return count

    async def settle(self, way: GivingWay) -> None:
        """Makes the compaction process decide which messages compaction keeps."""
        parts = await self._count(questions.plain(QuestionKind.PARTS))
        if parts > PARTS:
            raise ProcessFailed(
                f"the compaction process announces {parts} parts to settle; the maximum is {PARTS}"
            )
        for part in range(parts):
            await self._done(questions.settle_part(part))
            await way.rest()
        kept = await self._count(questions.plain(QuestionKind.SETTLE))
        if kept > self.count:
            raise ProcessFailed(
                f"the compaction process keeps {kept} messages, but was given only {self.count}"
            )
        self.kept = kept

    async def staying(self, spans: Sequence[tuple[int, int]]) -> bytes:
        """Returns a byte per range [first, end) of message numbers: 1 if compaction keeps any message in the
        range.
        """
        found = []
        for at in range(0, len(spans), _SPANS_AT_ONCE):
            some = spans[at : at + _SPANS_AT_ONCE]
            opened = partial(questions.opened_staying, expected=len(some))
            found.append(await self._ask(questions.staying(some), opened).answer())
        return b"".join(found)

    def copy(self, entries: Entries, places: EntryIds, partition: int, at: int) -> PendingAnswer[Copied]:
        """Asks the process for copies of those messages in ``entries`` that compaction keeps.

        :param places: the topic's positions of the entries
        :param partition: the topic's partition index; -1: not a partition
        :param at: the number of the first message, or :data:`questions.GOES_ON`
        """
        opened = partial(questions.opened_copied, at_most=entries.count)
        return self._ask(questions.copy(entries, places, partition, at), opened)

    async def remove(self) -> None:
        """Makes the process discard all data of this compaction, in memory and on disk."""
        await self._done(questions.plain(QuestionKind.REMOVE), _LEAVE_SECONDS)


class QuestionPipeline(Generic[C, T]):
    """Keeps one question in flight, so that the process works on it while the broker reads the next
    entries."""

    def __init__(self, use: Callable[[C, T], Awaitable[None]]) -> None:
        self._use = use
        self._asked: tuple[C, PendingAnswer[T]] | None = None

    async def put(self, context: C, asked: PendingAnswer[T]) -> None:
        """Adds a question that was sent; returns when the answer to the previous question was used.

        :raises ProcessFailed: the previous question was not answered
        """
        await self.end()
        self._asked = context, asked

    async def end(self) -> None:
        """Waits until all answers were used.

        :raises ProcessFailed: the last question was not answered
        """
        before, self._asked = self._asked, None
        if before is not None:
            context, asked = before
            await self._use(context, await asked.answer())


class GivingWay:
    """The pace of one compaction, from its first step on: while clients publish, the compaction pauses most
    of the time."""

    def __init__(self, loop: Loop, clock: Clock, published: Callable[[], int]) -> None:
        self._loop = loop
        self._clock = clock
        self._published = published
        self._known = published()
        self._published_at = clock.monotonic() - _LATELY_SECONDS
        self._went_on = clock.monotonic()

    def gives(self) -> bool:
        """Whether compaction pauses now, because clients are publishing."""
        now, count = self._clock.monotonic(), self._published()
        if count != self._known:
            self._known, self._published_at = count, now
        return now - self._published_at < _LATELY_SECONDS

    async def rest(self) -> None:
        """Pauses between two steps; returns at once if no client publishes."""
        if self.gives():
            took = self._clock.monotonic() - self._went_on
            await sleep(self._loop, min(_RESTS * took, _LONGEST_SECONDS))
        self._went_on = self._clock.monotonic()
