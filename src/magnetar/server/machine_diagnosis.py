"""Checks the machine for a broker, independent of its settings."""

from __future__ import annotations

import ctypes
import platform
import resource
import time
from collections.abc import Iterator
from enum import Enum
from importlib.metadata import PackageNotFoundError, version

from magnetar import __version__, hot
from magnetar.lazy_dataclass import dataclass

FEW_FILES = 10_000
"""Fewer open files than this are worth a warning: each client needs one."""
_NOT_KEPT = 5
"""The result of adjtimex if the clock is not synchronized (TIME_ERROR of sys/timex.h)."""
_TIMEX_BYTES = 512
"""More than the structure has on any platform. Zeros read the clock's state and change nothing."""


class FindingState(Enum):
    OK = "ok"
    WARN = "warn"
    """The broker works, but not as well as it could."""
    FAIL = "fail"
    """A start would fail, or nothing could be published."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line."""

    subject: str
    state: FindingState
    found: str
    advice: str = ""
    """What to do; empty if nothing is."""


def machine() -> Iterator[Finding]:
    """Yields each finding as soon as it is known."""
    yield versions()
    yield compiled()
    yield open_files()
    yield clock()


def versions() -> Finding:
    """Returns the versions of Magnetar, Python, and the event loop."""
    system = f"{platform.system()} {platform.release()}"
    found = f"Magnetar {__version__}, Python {platform.python_version()}, {system}"
    try:
        loop = f"uvloop {version('uvloop')}"
    except PackageNotFoundError:
        advice = "pip install uvloop, which makes the broker faster"
        return Finding("versions", FindingState.WARN, f"{found}, asyncio's own event loop", advice)
    return Finding("versions", FindingState.OK, f"{found}, {loop}")


def compiled() -> Finding:
    """Checks whether hot modules run compiled."""
    status = hot.status(hot.SERVING)
    warning = status.warning()
    if warning is None:
        return Finding("hot modules", FindingState.OK, f"all {len(status.forms)} are compiled")
    found, _, _advice = warning.partition(" (")
    return Finding("hot modules", FindingState.WARN, found, "python -m magnetar.hot build")


def open_files() -> Finding:
    """Checks the limit of open files; a broker raises its soft limit to the hard one."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    shown = "any number" if hard == resource.RLIM_INFINITY else f"{hard:,}"
    found = f"{shown} open files are allowed; each client connection is one"
    if hard != resource.RLIM_INFINITY and hard < FEW_FILES:
        advice = "raise the hard limit: ulimit -Hn, LimitNOFILE= of systemd"
        return Finding("open files", FindingState.WARN, found, advice)
    return Finding("open files", FindingState.OK, found)


def clock() -> Finding:
    """Checks whether the kernel's clock is synchronized."""
    now = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    try:
        answer = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
    except (AttributeError, OSError):
        return Finding(
            "clock", FindingState.OK, f"{now}; this system does not report whether the clock is synchronized"
        )
    if answer < 0:
        return Finding(
            "clock", FindingState.OK, f"{now}; cannot find out here whether the clock is synchronized"
        )
    if answer == _NOT_KEPT:
        advice = "run chrony or systemd-timesyncd: time to live, delays and tokens depend on the clock"
        return Finding("clock", FindingState.WARN, f"{now}; the clock is not synchronized", advice)
    return Finding("clock", FindingState.OK, f"{now}; the clock is synchronized")
