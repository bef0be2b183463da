"""Questions and answers over a socket, and every way in which there is no answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from magnetar.testing.channel import BrokerRefused, Channel, ChannelClosed


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    own, others = socket.socketpair()
    own.settimeout(20)
    with own, others:
        yield Channel(own), Channel(others)


def test_questions_are_answered(ends: tuple[Channel, Channel]) -> None:
    own, others = ends

    def answer() -> None:
        for _ in range(2):
            heard = others.hear()
            assert heard is not None
            others.tell({"twice": heard[0]["text"] * 2})

    answering = threading.Thread(target=answer)
    answering.start()
    # More than a socket takes at once.
    long = "x" * 1_000_000
    assert own.ask({"text": "a"}) == {"twice": "aa"}
    assert own.ask({"text": long}) == {"twice": long * 2}
    answering.join()


def test_files_go_along(ends: tuple[Channel, Channel], tmp_path: Path) -> None:
    own, others = ends
    (tmp_path / "file").write_text("content")
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    own.tell({"do": "read"}, [descriptor])
    os.close(descriptor)

    heard = others.hear()

    assert heard is not None
    question, (received,) = heard
    assert question == {"do": "read"}
    assert os.read(received, 100) == b"content"
    os.close(received)


def test_what_is_refused_is_raised(ends: tuple[Channel, Channel]) -> None:
    own, others = ends
    others.tell({"refused": "no"})
    with pytest.raises(BrokerRefused, match="no"):
        own.ask({})


def test_an_end_that_is_gone(ends: tuple[Channel, Channel]) -> None:
    own, others = ends
    others.close()
    assert own.hear() is None
    with pytest.raises(ChannelClosed, match="the process has ended"):
        own.ask({})


def test_an_end_that_does_not_answer() -> None:
    own, others = socket.socketpair()
    own.settimeout(0.01)
    with own, others, pytest.raises(ChannelClosed, match="no answer came within"):
        Channel(own).ask({})
