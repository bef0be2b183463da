"""What processes of their own do in tests; they find it by its name."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable, Sequence

from magnetar.io.interfaces import Buffer, Disk


def echo(_disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    return lambda question: (question[:1], question[1:])


def files(disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    """Writes what it is asked to a file, and answers with the names of all."""

    def answer(question: bytes) -> Sequence[Buffer]:
        disk.open(f"files/{question.decode()}", create=True).close()
        return [",".join(disk.names("files")).encode()]

    return answer


def picky(_disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    def answer(question: bytes) -> Sequence[Buffer]:
        if question == b"no":
            raise OSError(28, "No space left on device")
        return (question,)

    return answer


def about_itself(_disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return lambda _question: (f"{os.nice(0)} {os.getpid()} {ignored}".encode(),)


def leaves(_disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    return lambda question: os._exit(question[0])


def raves(_disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    """Answers beside the question, straight to its socket: with too much, or with two answers to one."""

    def answer(question: bytes) -> Sequence[Buffer]:
        head = struct.Struct("<BI")
        os.write(0, head.pack(0, 2**31) if question == b"much" else 2 * head.pack(0, 0))
        return ()

    return answer


def missing(_disk: Disk) -> Callable[[bytes], Sequence[Buffer]]:
    raise ValueError("there is none")
