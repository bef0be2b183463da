"""What every process of a server has: limits, an event loop, signals."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from magnetar.io.real.memory import keep_freed_buffers

log = logging.getLogger(__name__)

_SWITCH_INTERVAL_SECONDS = 2e-5
_SAME_SIGNAL_SECONDS = 1.0
"""Signals so close together are one."""
_STOP_SECONDS = 10.0
EXIT_CODE_FAILED = 1


class Served(Protocol):
    """What a process serves."""

    async def stop(self) -> None: ...


S = TypeVar("S", bound=Served)


def prepare_process() -> None:
    """Before the loop is made."""
    _allow_open_files()
    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    keep_freed_buffers()


def _allow_open_files() -> None:
    """As many as the system lets this process have: each client needs one."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        log.warning("cannot raise the limit of open files", extra={"error": str(error)})


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def listen_to_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
    """A future that is done at the first SIGTERM or SIGINT; another one, later, ends the process."""
    stopping: asyncio.Future[None] = loop.create_future()
    first = 0.0

    def arrived(number: signal.Signals) -> None:
        nonlocal first
        if stopping.done() and loop.time() - first < _SAME_SIGNAL_SECONDS:
            # Who ends services often signals the process and its group.
            return
        if stopping.done():
            sys.stderr.write(f"magnetar: {number.name} received again: exiting immediately\n")
            sys.stderr.flush()
            os._exit(128 + number)
        first = loop.time()
        log.info("signal received", extra={"signal": number.name})
        stopping.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, arrived, number)
    return stopping


async def serve_until_signal(
    loop: asyncio.AbstractEventLoop, start: Coroutine[Any, Any, S], say: Callable[[S], None]
) -> int:
    """Starts, says so, and stops at the first signal, which may come before that; answers the exit code.

    :raises Exception: what ``start`` raises
    """
    stopping = listen_to_signals(loop)
    starting = loop.create_task(start)
    either: set[asyncio.Future[Any]] = {starting, stopping}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.wait({starting})
        return EXIT_CODE_FAILED
    served = await starting
    try:
        say(served)
        await stopping
        log.info("stopping")
        async with asyncio.timeout(_STOP_SECONDS):
            await served.stop()
    except TimeoutError:
        log.error("stopping took too long", extra={"seconds": _STOP_SECONDS})
        return EXIT_CODE_FAILED
    log.info("stopped")
    return 0


def reachable_host(host: str) -> str:
    """A host as URLs have it, whatever is listened on; ``localhost`` for all addresses."""
    # Compared, not bound to.
    if host in ("", "0.0.0.0", "::"):  # nosec B104
        host = "localhost"
    return f"[{host}]" if ":" in host else host


def say_serving(title: str, host: str, ports: Mapping[str, int], behind: str) -> None:
    """The one line on standard output.

    :param host: as URLs have it
    :param ports: the real ones, by scheme
    :param behind: what is behind it: data or brokers, and where
    """
    urls = [f"{scheme}://{host}:{port}" for scheme, port in ports.items()]
    named = " and ".join(filter(None, (", ".join(urls[:-1]), urls[-1])))
    sys.stdout.write(f"Magnetar {title} is serving {named} ({behind}, started in {process_age_ms()} ms)\n")
    sys.stdout.flush()


def process_age_ms() -> int:
    """Milliseconds since the kernel made this process, to about 10; the interpreter's own start counts."""
    try:
        fields = Path("/proc/self/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        born = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return round((time.clock_gettime(time.CLOCK_BOOTTIME) - born) * 1000)
    except (OSError, AttributeError):
        # Not Linux: what the interpreter used of the processor is the next best.
        return round(time.process_time() * 1000)
