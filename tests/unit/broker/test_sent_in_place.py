"""Large entries go to a consumer's socket out of their buffer; what it receives is the same."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.broker.consumers.consumer import Consumer, goes_in_place
from magnetar.io.interfaces import LARGE_PIECE, Buffer
from magnetar.ledger.interface import EntryRun
from magnetar.protocol.hot_codec import encode_chosen, encode_messages

LARGE = 2 * LARGE_PIECE


class Sent:
    """What a consumer queues, and what its subscription hears."""

    def __init__(self, epoch: int | None) -> None:
        self.frames: list[Buffer] = []
        self.told: list[tuple[int, int, int]] = []
        connection: Any = SimpleNamespace(address="a", client_version="c", queue=self.frames.append)
        self.consumer: Consumer[Any] = Consumer(
            self, connection, 3, "c", priority=0, epoch=epoch, metadata={}, connected_ms=0, partition=2
        )

    def sent(self, entries: int, messages: int, size: int) -> int:
        self.told.append((entries, messages, size))
        return 0


def run_of(*sizes: int, behind: int = 0) -> EntryRun:
    """A byte is between entries, and ``behind`` after the last."""
    buffer, starts, ends = bytearray(), array("q"), array("q")
    for index, size in enumerate(sizes):
        buffer += b"<"
        starts.append(len(buffer))
        buffer += bytes([index + 1]) * size
        ends.append(len(buffer))
    return EntryRun(7, 126, len(sizes), bytes(buffer + bytes(behind)), starts, ends)


@pytest.mark.parametrize("epoch", [None, 0, 300])
def test_a_run_of_large_entries_is_not_copied(epoch: int | None) -> None:
    run, sent = run_of(LARGE, LARGE + 1, 3 * LARGE), Sent(epoch)
    sent.consumer.send_first(run, 1, 3, 20)
    wanted = encode_messages(
        3, 7, 127, run.buffer, run.starts, run.ends, 1, 2, 2, -1 if epoch is None else epoch
    )
    assert b"".join(sent.frames) == wanted
    entries = [each for each in sent.frames if isinstance(each, memoryview)]
    assert [each.obj for each in entries] == [run.buffer] * 2
    assert sent.told == [(2, 20, 4 * LARGE + 1)]
    assert sent.consumer.permits == -20


def test_chosen_ones_are_not_copied_either() -> None:
    run, sent = run_of(LARGE, 10, LARGE), Sent(None)
    chosen = array("q", (0, 2))
    sent.consumer.send_chosen(run, chosen, 5)
    wanted = encode_chosen(3, 7, 126, run.buffer, run.starts, run.ends, chosen, 2, 2)
    assert b"".join(sent.frames) == wanted
    assert sum(isinstance(each, memoryview) for each in sent.frames) == 2
    assert sent.told == [(2, 5, 2 * LARGE)]


def test_small_ones_are_put_together_and_what_would_keep_much_alive_is_copied() -> None:
    small, alone = run_of(*[100] * 50), run_of(LARGE, behind=3 * LARGE)
    for run in (small, alone):
        sent = Sent(None)
        sent.consumer.send_first(run, 0, run.count, 1)
        (frames,) = sent.frames
        assert isinstance(frames, bytearray)
        wanted = encode_messages(3, 7, 126, run.buffer, run.starts, run.ends, 0, run.count, 2)
        assert frames == wanted
    assert not goes_in_place(alone, 1, LARGE)
    assert goes_in_place(run_of(LARGE, behind=2 * LARGE), 1, LARGE)
