"""Requests to a child process and its answers, for real and simulated processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.io.interfaces import Buffer, ProcessFailed

ANSWERED = 0
FAILED = 1


def answer_to(question: bytes, answer: Callable[[bytes], Sequence[Buffer]]) -> tuple[int, Sequence[Buffer]]:
    """Answers a request; returns its outcome, and the parts of the answer."""
    try:
        return ANSWERED, answer(question)
    except Exception as error:  # noqa: BLE001 - returned to the requester
        return FAILED, (f"{type(error).__name__}: {error}".encode(errors="replace"),)


def understood(name: str, how: int, answer: bytes) -> bytes:
    """Decodes an answer of the process called ``name``.

    :raises ProcessFailed: the process could not carry out the request
    """
    if how == ANSWERED:
        return answer
    raise ProcessFailed(f"the {name} process failed: {answer.decode(errors='replace')}")
