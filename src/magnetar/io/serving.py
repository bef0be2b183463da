"""Requests to a child process and its answers, for real and simulated processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.io.interfaces import Buffer, ProcessFailed

ANSWERED = 0
FAILED = 1


def answer_to(question: bytes, answer: Callable[[bytes], Sequence[Buffer]]) -> tuple[int, Sequence[Buffer]]:
    """Returns the outcome of a request, ANSWERED or FAILED, and the parts of the answer or error text."""
    try:
        return ANSWERED, answer(question)
    except Exception as error:  # noqa: BLE001 - returned to the requester
        return FAILED, (f"{type(error).__name__}: {error}".encode(errors="replace"),)


def understood(name: str, how: int, answer: bytes) -> bytes:
    """Returns an answer of the process called ``name``.

    :param how: the outcome of the request, ANSWERED or FAILED; FAILED: ``answer`` is the text of the error
    :raises ProcessFailed: the process could not carry out the request
    """
    if how == ANSWERED:
        return answer
    raise ProcessFailed(f"the {name} process failed: {answer.decode(errors='replace')}")
