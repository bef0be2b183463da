"""Looking for the latest messages in a process of its own: asking it, and what is made of its answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

from magnetar.broker.compaction import questions
from magnetar.broker.compaction.giving_way import GivingWay
from magnetar.broker.compaction.latest_messages import Copied, Entries
from magnetar.broker.compaction.process import service
from magnetar.broker.compaction.questions import Beginning, EntryIds, Nonsense, Question, QuestionKind
from magnetar.io.interfaces import Cancellable, Io, Process, ProcessFailed
from magnetar.io.waiting import finished, nobody_waits
from magnetar.protocol.hot_compaction import PARTS

C = TypeVar("C")
T = TypeVar("T")

_KEPT_SECONDS = 10.0
"""So long the process stays when nothing is compacted: the next compaction may not be far."""

_ANSWER_SECONDS = 300.0
"""A process that does not answer for so long does not work any more. It may have to wait for a processor."""

_LEAVE_SECONDS = 10.0
"""Nobody waits longer for what is of no use but to the disk: the next compaction would see to it, too."""

_MOST_MESSAGES = 1 << 31
"""In an entry: that is as far as the number in a batch's metadata goes."""

_SPANS_AT_ONCE = 4_096


class Elsewhere:
    """The process: started when it is needed, ended some seconds after it was."""

    def __init__(self, io: Io) -> None:
        self._io = io
        self._process: Process | None = None
        self._ending: Cancellable | None = None

    async def begin(self, beginning: Beginning) -> LatestElsewhere:
        """A compaction begins there; one at a time.

        :raises ProcessFailed: it does not answer
        :raises OSError: there is no process, and none can be started
        """
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._process is None:
            self._process = self._io.start_process("compaction", service)
        latest = LatestElsewhere(self._io, self._process)
        await latest.begin(beginning)
        return latest

    def rest(self) -> None:
        """Nothing is compacted for now."""
        if self._process is not None and self._ending is None:
            self._ending = self._io.loop.call_later(_KEPT_SECONDS, self.close)

    def close(self) -> None:
        """Ends the process. The next compaction starts another one."""
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        process, self._process = self._process, None
        if process is not None:
            process.close()


class PendingAnswer(Generic[T]):
    """A question that is on its way, whose answer somebody will want."""

    def __init__(self, io: Io, process: Process, question: Question, opened: Callable[[bytes], T]) -> None:
        self._io = io
        self._opened = opened
        self._answer = process.ask(question)
        self._answer.add_done_callback(nobody_waits)

    async def answer(self, patience: float = _ANSWER_SECONDS) -> T:
        """:param patience: in seconds

        :raises ProcessFailed: there is none, or one that nobody understands
        """
        limit = partial(self._io.loop.call_later, patience)
        if not await finished(self._io.loop, self._answer, limit):
            raise ProcessFailed(f"the compaction process did not answer within {patience:g} s")
        answer = self._answer.result()
        try:
            return self._opened(answer)
        except Nonsense as nonsense:
            raise ProcessFailed(f"the compaction process answered nonsense: {nonsense}") from nonsense


class LatestElsewhere:
    """Like ``LatestMessages``, which it asks in the process."""

    def __init__(self, io: Io, process: Process) -> None:
        self._io = io
        self._process = process
        self.count = 0
        """Messages numbered, as far as answers came."""
        self.kept = 0
        """Of these, those that stay."""

    def _ask(self, question: Question, opened: Callable[[bytes], T]) -> PendingAnswer[T]:
        return PendingAnswer(self._io, self._process, question, opened)

    async def _done(self, question: Question, patience: float = _ANSWER_SECONDS) -> None:
        await self._ask(question, partial(questions.opened_counts, expected=0)).answer(patience)

    async def _count(self, question: Question) -> int:
        return (await self._ask(question, partial(questions.opened_counts, expected=1)).answer())[0]

    async def begin(self, beginning: Beginning) -> None:
        await self._done(questions.begin(beginning))

    def number(self, entries: Entries) -> PendingAnswer[int]:
        """It comes to the number of messages so far."""
        return self._ask(questions.number(entries), partial(self._numbered, entries.count))

    def _numbered(self, entries: int, answer: bytes) -> int:
        count = questions.opened_counts(answer, 1)[0]
        if not 0 <= count - self.count <= entries * _MOST_MESSAGES:
            raise Nonsense(f"{count} messages with {entries} entries after {self.count}")
        self.count = count
        return count

    async def settle(self, way: GivingWay) -> None:
        """It is known there what stays, when this returns."""
        parts = await self._count(questions.plain(QuestionKind.PARTS))
        if parts > PARTS:
            raise ProcessFailed(f"the compaction process wants to settle {parts} parts of {PARTS}")
        for part in range(parts):
            await self._done(questions.settle_part(part))
            await way.rest()
        kept = await self._count(questions.plain(QuestionKind.SETTLE))
        if kept > self.count:
            raise ProcessFailed(f"the compaction process keeps {kept} messages of {self.count}")
        self.kept = kept

    async def staying(self, spans: Sequence[tuple[int, int]]) -> bytes:
        """A byte for each of these, numbers of messages [first, end): 1 where any stays."""
        found = []
        for at in range(0, len(spans), _SPANS_AT_ONCE):
            some = spans[at : at + _SPANS_AT_ONCE]
            opened = partial(questions.opened_staying, expected=len(some))
            found.append(await self._ask(questions.staying(some), opened).answer())
        return b"".join(found)

    def copy(self, entries: Entries, places: EntryIds, partition: int, at: int) -> PendingAnswer[Copied]:
        """:param at: the number of the first message, or :data:`questions.GOES_ON`"""
        opened = partial(questions.opened_copied, at_most=entries.count)
        return self._ask(questions.copy(entries, places, partition, at), opened)

    async def remove(self) -> None:
        """Nothing is left there of this compaction, neither in memory nor on the disk."""
        await self._done(questions.plain(QuestionKind.REMOVE), _LEAVE_SECONDS)


class QuestionPipeline(Generic[C, T]):
    """One question is answered there while the next one is read here.

    :param use: takes what came with a question, and the answer, in order
    """

    def __init__(self, use: Callable[[C, T], Awaitable[None]]) -> None:
        self._use = use
        self._asked: tuple[C, PendingAnswer[T]] | None = None

    async def put(self, context: C, asked: PendingAnswer[T]) -> None:
        """Returns when the answer to the question before was used. :raises ProcessFailed: there is none"""
        await self.end()
        self._asked = context, asked

    async def end(self) -> None:
        """All answers were used when this returns. :raises ProcessFailed: there is none"""
        before, self._asked = self._asked, None
        if before is not None:
            context, asked = before
            await self._use(context, await asked.answer())
