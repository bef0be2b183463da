"""Measures what the system needs to carry entries over loopback unread: a lower bound for any broker.

``python -m bench.loopback`` prints the processor time of a process that receives entries on one connection
and sends each on four: to three peers that answer like bookies, and to one that acknowledges like a consumer.
It answers the sender when it has all four answers. The process knows the sizes, wakes when an entry is
complete, has one buffer for all entries, and reads and writes each in one call, so it does little but system
calls.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import select
import socket
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.process import BaseProcess
from typing import NamedTuple

_COPIES = 4
_ANSWER = bytes(28)
_READ_BYTES = 256 << 10


class Work(NamedTuple):
    """The load."""

    size: int
    """Size of an entry in bytes."""
    count: int
    in_flight: int = 10
    """Limit of entries without an answer."""
    rate: float = 0
    """Entries per second; 0: as fast as answers arrive."""


WORKLOADS = {
    "1,000 messages of 100 B in an entry": Work(112_000, 15_000),
    "125 messages of 1 KB in an entry": Work(129_500, 15_000),
    "one message of 100 B in an entry, 1,000/s": Work(150, 4_000, 1_000, 1_000),
}


def _send_entries(port: int, work: Work) -> None:
    """Acts as a producer."""
    entry, began = bytes(work.size), time.monotonic()
    sent = answered = 0
    with socket.create_connection(("127.0.0.1", port)) as relay:
        relay.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while answered < work.count:
            wait = max(0.0, began + sent / work.rate - time.monotonic()) if work.rate else 0.0
            if sent < work.count and sent - answered < work.in_flight and not wait:
                relay.sendall(entry)
                sent += 1
            else:
                ready, _, _ = select.select((relay,), (), (), wait or None)
                answered += len(relay.recv(_READ_BYTES)) // len(_ANSWER) if ready else 0


def _take_entries(port: int, work: Work) -> None:
    """Acts as a bookie, or as a consumer."""
    with socket.create_connection(("127.0.0.1", port)) as relay:
        relay.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        space, held = bytearray(_READ_BYTES), 0
        while read := relay.recv_into(space):
            whole, held = divmod(held + read, work.size)
            if whole:
                relay.sendall(_ANSWER * whole)


def _relay(source: socket.socket, sinks: dict[int, socket.socket], work: Work) -> None:
    """Does the necessary work of a broker."""
    entry, told = memoryview(bytearray(work.size)), 0
    answers = dict.fromkeys(sinks, 0)
    source.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, work.size)
    with select.epoll() as poll:
        for number in (source.fileno(), *sinks):
            poll.register(number, select.EPOLLIN)
        while told < work.count:
            for number, _ in poll.poll():
                if number in sinks:
                    answers[number] += len(sinks[number].recv(_READ_BYTES)) // len(_ANSWER)
                    continue
                source.recv_into(entry, 0, socket.MSG_WAITALL)
                for sink in sinks.values():
                    sink.sendall(entry)
            if (done := min(answers.values())) > told:
                source.sendall(_ANSWER * (done - told))
                told = done


def _connected(stack: ExitStack, work: Work, act: Callable[[int, Work], None]) -> socket.socket:
    """Returns a connection to a process that runs ``act``, until the stack ends."""
    listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    port = listening.getsockname()[1]
    process = multiprocessing.get_context("fork").Process(target=act, args=(port, work), daemon=True)
    process.start()
    stack.callback(_ended, process)
    connection = stack.enter_context(listening.accept()[0])
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _ended(process: BaseProcess) -> None:
    process.kill()
    process.join()


def measure(work: Work) -> dict[str, float]:
    """Returns processor µs per entry, and entries per second."""
    with ExitStack() as stack:
        sinks = [_connected(stack, work, _take_entries) for _ in range(_COPIES)]
        source = _connected(stack, work, _send_entries)
        before, began = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
        _relay(source, {sink.fileno(): sink for sink in sinks}, work)
        after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return {
        "entry_bytes": work.size,
        "cpu_us_per_entry": round((user + system) / work.count * 1e6, 1),
        "of_these_in_the_system": round(system / work.count * 1e6, 1),
        "entries_per_second": round(work.count / took),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], choices=[*WORKLOADS])
    options = parser.parse_args()
    found = {name: measure(work) for name, work in WORKLOADS.items() if name in (options.only or WORKLOADS)}
    sys.stdout.write(json.dumps({"machine": f"{os.cpu_count()} cores", **found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
