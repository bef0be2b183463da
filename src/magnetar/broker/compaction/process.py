"""The program of the compaction process, which runs one compaction at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.compaction import questions
from magnetar.broker.compaction.latest_messages import LatestMessages
from magnetar.broker.compaction.questions import QuestionKind
from magnetar.io.interfaces import Buffer, Disk


class OutOfTurn(Exception):
    """A question about a compaction arrived while none runs."""


def service(disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    """Returns the function that answers questions, for a process that compacts.

    :param disk: the disk to which keys that do not fit in memory are spilled
    """
    return _Compacting(disk).answer


class _Compacting:
    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._latest: LatestMessages | None = None
        self._answers: dict[QuestionKind, Callable[[LatestMessages, bytes], Sequence[Buffer]]] = {
            QuestionKind.NUMBER: _number,
            QuestionKind.PARTS: _parts,
            QuestionKind.SETTLE_PART: _settle_part,
            QuestionKind.SETTLE: _settle,
            QuestionKind.STAYING: _staying,
            QuestionKind.COPY: _copy,
        }

    def answer(self, question: bytes) -> Sequence[Buffer]:
        """Answers one question of the broker.

        :raises OSError: keys that do not fit in memory cannot be written to the disk or read back
        """
        kind = questions.kind_of(question)
        if kind is QuestionKind.REMOVE:
            self._remove()
            return ()
        if kind is QuestionKind.BEGIN:
            self._remove()
            wanted = questions.opened_begin(question)
            self._latest = LatestMessages(
                self._disk,
                retain_keyless=wanted.retain_keyless,
                memory=wanted.memory,
                max_size=wanted.max_size,
            )
            # Removes the files of a process that was interrupted.
            self._latest.remove()
            return ()
        if self._latest is None:
            raise OutOfTurn(f"{kind.name} was received, but no compaction is in progress")
        return self._answers[kind](self._latest, question)

    def _remove(self) -> None:
        latest, self._latest = self._latest, None
        if latest is not None:
            latest.remove()


def _number(latest: LatestMessages, question: bytes) -> Sequence[Buffer]:
    return questions.count(latest.number(questions.opened_number(question)))


def _parts(latest: LatestMessages, _question: bytes) -> Sequence[Buffer]:
    return questions.count(latest.parts())


def _settle_part(latest: LatestMessages, question: bytes) -> Sequence[Buffer]:
    latest.settle_part(questions.opened_part(question))
    return ()


def _settle(latest: LatestMessages, _question: bytes) -> Sequence[Buffer]:
    latest.settle()
    return questions.count(latest.kept)


def _staying(latest: LatestMessages, question: bytes) -> Sequence[Buffer]:
    return (bytes(latest.any_stay(*span) for span in questions.opened_spans(question)),)


def _copy(latest: LatestMessages, question: bytes) -> Sequence[Buffer]:
    entries, places, partition, number = questions.opened_copy(question)
    if number != questions.GOES_ON:
        latest.pass_by(number)
    return questions.copied(latest.copy(entries, *places.of_each(entries.count), partition))
