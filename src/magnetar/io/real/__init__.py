"""The real world: the operating system's clock, randomness, files, threads and sockets."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from magnetar.exit_codes import IO_FAILED
from magnetar.io.interfaces import ClientIo, ConnectingNetwork, Io, Loop, Service
from magnetar.io.real.direct import KernelWrites
from magnetar.io.real.disk import RealDisk
from magnetar.io.real.network import TcpNetwork
from magnetar.io.real.sqlite import SqliteConnection
from magnetar.io.real.worker import ThreadWorker

if TYPE_CHECKING:
    from magnetar.io.real.process import ChildProcess
    from magnetar.io.tls import ClientTls

__all__ = ["is_running", "real_client_io", "real_io", "running_client_io", "stop_process"]

log = logging.getLogger("magnetar.io")


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def processor(self) -> float:
        return time.thread_time()


class SystemRandomness:
    """Random numbers, seeded by the system; :meth:`token` comes from the system and is suitable for
    secrets."""

    def __init__(self) -> None:
        self._random = random.Random()

    def below(self, bound: int) -> int:
        return self._random.randrange(bound)

    def fraction(self) -> float:
        return self._random.random()

    def token(self, length: int) -> bytes:
        return os.urandom(length)


def stop_process(message: str) -> NoReturn:
    """Ends the process at once, without cleanup, because only the data on disk is reliable now."""
    sys.stderr.write(f"magnetar: {message}\n")
    sys.stderr.flush()
    os._exit(IO_FAILED)


def real_io(loop: asyncio.AbstractEventLoop, data_dir: str | Path, *, in_threads: bool = False) -> Io:
    """Makes the interfaces for one event loop, with the disk's root at ``data_dir`` (created if missing).

    :param in_threads: whether workers do all work that waits for the disk, so that work in progress can be
    counted
    :raises OSError: the directory cannot be created or used
    """
    disk = RealDisk(data_dir) if in_threads else RealDisk(data_dir, _kernel_writes(loop))

    def start_worker(name: str) -> ThreadWorker:
        return ThreadWorker(loop, name)

    def start_process(name: str, service: Service) -> ChildProcess:
        # Imported here because most processes never start one.
        from magnetar.io.real.process import ChildProcess

        return ChildProcess(loop, name, service, disk.locate("."))

    def open_sqlite(path: str) -> SqliteConnection:
        return SqliteConnection(str(disk.locate(path)))

    return Io(
        loop=loop,
        clock=SystemClock(),
        randomness=SystemRandomness(),
        disk=disk,
        network=TcpNetwork(loop),
        start_worker=start_worker,
        start_process=start_process,
        open_sqlite=open_sqlite,
        stop_process=stop_process,
    )


def _kernel_writes(loop: asyncio.AbstractEventLoop) -> Callable[[], KernelWrites | None]:
    """Returns a function that returns the kernel writes of the loop; the function's first call sets them up.

    The function returns None if the system or the loop does not support kernel writes.
    """

    @cache
    def made() -> KernelWrites | None:
        try:
            return KernelWrites(loop)
        except (OSError, NotImplementedError) as error:
            log.info(
                "durable writes use threads: direct submission to the kernel is not available",
                extra={"reason": str(error)},
            )
            return None

    return made


def real_client_io(loop: asyncio.AbstractEventLoop) -> ClientIo:
    """Makes the interfaces for a client, on one event loop."""
    return ClientIo(
        loop=loop,
        clock=SystemClock(),
        randomness=SystemRandomness(),
        network=TcpNetwork(loop),
        secured=partial(_secured, loop),
        apart=partial(loop.run_in_executor, None),
        in_children=_in_children,
    )


def _in_children(call: Callable[[], object]) -> None:
    # Imported here because a broker that has no client does without.
    from magnetar.io.real.loop_thread import in_children

    in_children(call)


def _secured(loop: asyncio.AbstractEventLoop, wanted: ClientTls) -> ConnectingNetwork:
    # Imported only if TLS is used: it takes time to load.
    from magnetar.io.real.tls_network import TlsClientNetwork
    from magnetar.io.tls import ClientContext

    return TlsClientNetwork(loop, ClientContext(wanted), proxy=wanted.proxy)


def is_running(loop: Loop) -> bool:
    """Whether the caller is running on this loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


def running_client_io() -> ClientIo:
    """Makes the interfaces for a client, on the running loop.

    :raises RuntimeError: no loop is running
    """
    return real_client_io(asyncio.get_running_loop())
