"""Common parts of server processes: limits, event loop, signals, and finding the process that occupies a
port."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from magnetar.exit_codes import FAILED, SUCCEEDED, ended_by
from magnetar.io.real.memory import keep_freed_buffers
from magnetar.io.tasks import TaskScope

log = logging.getLogger(__name__)
_SWITCH_INTERVAL_SECONDS = 2e-5
_SAME_SIGNAL_SECONDS = 1.0
"""Signals within this time, in seconds, count as one signal."""
_STOP_SECONDS = 10.0
_LISTENING = "0A"


class Served(Protocol):
    """A running service, which can be stopped."""

    async def stop(self) -> None: ...


S = TypeVar("S", bound=Served)


def prepare_process() -> None:
    """Sets limits and the log of the process, before the event loop is created."""
    _allow_open_files()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    keep_freed_buffers()


def _allow_open_files() -> None:
    """Raises the limit of open files to the maximum, because each client needs an open file."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("cannot raise the limit of open files", extra={"error": str(error)})


def new_loop() -> asyncio.AbstractEventLoop:
    """Returns an event loop of uvloop if installed, otherwise of asyncio."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def listen_to_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """Returns a future that completes at the first SIGTERM or SIGINT. A later signal kills the process."""
    stopping: asyncio.Future[None] = loop.create_future()
    first = 0.0

    def arrived(number: signal.Signals) -> None:
        nonlocal first
        if stopping.done() and loop.time() - first < _SAME_SIGNAL_SECONDS:
            # Service managers often signal both the process and its group.
            return
        if stopping.done():
            sys.stderr.write(f"magnetar: {number.name} received again: exiting immediately\n")
            sys.stderr.flush()
            os._exit(ended_by(number))
        first = loop.time()
        log.info("signal received", extra={"signal": number.name})
        stopping.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, arrived, number)
    return stopping


async def serve_until_signal(
    loop: asyncio.AbstractEventLoop, start: Coroutine[object, None, S], say: Callable[[S], None]
) -> int:
    """Awaits ``start``, passes the running service that ``start`` returns to ``say``, and stops the service
    at the first signal; a signal during the start cancels the start. Returns the exit code: ``FAILED`` if the
    start was cancelled or the stop took too long.

    :raises Exception: an error of ``start``
    """
    stopping = listen_to_signals(loop)
    starting = TaskScope(loop, "the process").answer(start)
    either: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return FAILED
    served = await starting
    try:
        say(served)
        await stopping
        log.info("stopping")
        async with asyncio.timeout(_STOP_SECONDS):
            await served.stop()
    except TimeoutError:
        log.error("stopping took too long", extra={"seconds": _STOP_SECONDS})
        return FAILED
    log.info("stopped")
    return SUCCEEDED


def reachable_host(host: str) -> str:
    """Returns the host of a listener as it is written in URLs; ``localhost`` for a listener on all
    addresses."""
    # Only a comparison, not a bind address.
    if host in ("", "0.0.0.0", "::"):  # nosec B104
        host = "localhost"
    return f"[{host}]" if ":" in host else host


def say_serving(title: str, host: str, ports: Mapping[str, int], behind: str) -> None:
    """Writes the line on standard output that announces that the process is serving.

    :param host: the host as it is written in URLs
    :param ports: the actual ports, by scheme
    :param behind: description of the data or the brokers behind the process
    """
    urls = [f"{scheme}://{host}:{port}" for scheme, port in ports.items()]
    named = " and ".join(filter(None, (", ".join(urls[:-1]), urls[-1])))
    sys.stdout.write(f"Magnetar {title} is serving {named} ({behind}, started in {process_age_ms()} ms)\n")
    sys.stdout.flush()


def process_age_ms() -> int:
    """Returns the age of the process in milliseconds (resolution 10 ms), including the interpreter's
    start.
    """
    try:
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        born = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return round((time.clock_gettime(time.CLOCK_BOOTTIME) - born) * 1000)
    except (OSError, AttributeError):
        # Not Linux: use the processor time of the process as an estimate.
        return round(time.process_time() * 1000)


class PortTaken(OSError):
    """Another process listens on the port; the message contains the process, and the option that changes the
    port.
    """


@contextmanager
def taken_port(kind: str, option: str, port: int) -> Iterator[None]:
    """If the ``with`` body finds that the port is in use, raises an error that names the process on the port.

    :param kind: the name of the protocol, for the error text
    :param option: the command-line option that changes the port

    :raises PortTaken: the port is in use
    """
    try:
        yield
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        owner = owner_of(port)
        by = f" by {owner}" if owner else ""
        raise PortTaken(
            f"{kind} port {port} is in use{by}; stop that process, or use {option} 0 for a free port"
        ) from error


def owner_of(port: int) -> str | None:
    """Returns the id and the name of the process that listens on a TCP port; None: the process is not
    known.
    """
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if any(str(link.readlink()) in sockets for link in (process / "fd").iterdir()):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                return f"process {process.name} ({name})"
        except OSError:
            # The process belongs to another user, or has ended.
            continue
    return None


def _inodes(port: int) -> Iterator[str]:
    """Yields the inodes of sockets that listen on a port, from the kernel's tables."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in (line.split() for line in lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
