"""Checks whether a machine is suitable for a broker, in general and with the settings of a broker."""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from enum import Enum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median

from magnetar import __version__, hot
from magnetar.config.reading import ConfigurationError, SettingsContradict
from magnetar.config.settings import Settings, load
from magnetar.io.interfaces import SqlError
from magnetar.io.real.disk import RealDisk
from magnetar.io.real.sqlite import reading_unchanged
from magnetar.lazy_dataclass import dataclass
from magnetar.ledger.embedded.disk_guard import DiskGuardSettings, DiskUse
from magnetar.managed_ledger.records import ROOT
from magnetar.server.addresses import BindAddress, bind_addresses, exposures
from magnetar.server.configuration_check import kind_of
from magnetar.server.embedded_stores import METADATA_FILE
from magnetar.server.loop_process import owner_of
from magnetar.server.settings import disk_guard_settings

SLOW_SYNC_SECONDS = 0.01
"""The median duration of a commit in seconds above which a warning is given. Each publish waits for a commit;
on typical servers, a commit takes a hundredth of this time."""
_SYNCS = 40
_MOST_SECONDS = 0.4
"""Maximum time for measuring commits, in seconds."""
_BLOCK = bytes(4096)
FEW_FILES = 10_000
"""A limit of open files below this number causes a warning, because each client needs an open file."""
_OF_TRANSACTIONS = (
    "SELECT DISTINCT parent FROM nodes WHERE parent LIKE '%/persistent' AND "
    r"(path LIKE '%/\_\_transaction\_buffer\_snapshot%' ESCAPE '\' "
    r"OR path LIKE '%\_\_transaction\_pending\_ack' ESCAPE '\')"
)
"""Finds the namespaces whose topics or subscriptions have had transactions."""
_MOST_NAMED = 5
_NOT_KEPT = 5
"""The result of ``adjtimex`` if the clock is not synchronized (TIME_ERROR in sys/timex.h)."""
_TIMEX_BYTES = 512
"""The size of the buffer for ``adjtimex``, larger than ``struct timex`` on any platform. A buffer of zeros
only reads the state of the clock."""


def broker(config: Path | None, data_dir: Path) -> Iterator[Finding]:
    """Checks the machine for a broker with the given settings, and yields each finding as soon as it is
    known. If the settings cannot be used, the error about the settings is the only finding.

    :param config: a ``standalone.conf`` or ``broker.conf``; None: the default settings
    :param data_dir: the data directory of a standalone broker; it need not exist
    """
    try:
        cluster = config is not None and kind_of(config) == "broker"
        settings = load(config, cluster=cluster).settings
        listening, bounds = bind_addresses(settings), disk_guard_settings(settings)
    except (ConfigurationError, SettingsContradict) as error:
        advice = "" if config is None else f"magnetar check {config}"
        yield Finding("settings", FindingState.FAIL, str(error), advice)
        return
    yield Finding("settings", FindingState.OK, "all defaults" if config is None else f"{config} can be used")
    for bind in listening:
        yield port(bind)
    yield from exposed(settings, listening)
    if not cluster:
        yield space(bounds, data_dir)
        yield sync_speed(data_dir)
        if not settings.transaction_coordinator_enabled:
            yield from left_by_transactions(data_dir)


def exposed(settings: Settings, listening: Sequence[BindAddress]) -> Iterator[Finding]:
    """Yields warnings about listeners that other machines can reach, and about advertised addresses."""
    for exposure in exposures(settings, listening):
        yield Finding("exposure", FindingState.WARN, exposure.found, exposure.advice)


def port(bind: BindAddress) -> Finding:
    """Checks whether a broker could listen on an address."""
    subject = f"port {bind.port}"
    where = f"{bind.scheme} on {bind.host or 'all addresses'}"
    host = bind.host or None
    try:
        family, kind, protocol, _name, address = socket.getaddrinfo(
            host, bind.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with closing(socket.socket(family, kind, protocol)) as tried:
            # As brokers do, so that connections of an earlier process do not count as a conflict.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(address)
    except OSError as error:
        owner = owner_of(bind.port)
        by = f", {owner} listens there" if owner else ""
        advice = f"end that process, or use {bind.option} 0 for a free port"
        return Finding(subject, FindingState.FAIL, f"{where}: {error.strerror or error}{by}", advice)
    return Finding(subject, FindingState.OK, f"{where} is free")


def left_by_transactions(data_dir: Path) -> Iterator[Finding]:
    """Yields a warning if topics have had transactions; called only if transactions are disabled. Records
    that a running broker writes during the check may be missed.
    """
    file = data_dir / METADATA_FILE
    if not file.exists():
        return
    try:
        # The write-ahead log of a process that was killed has what it has written last.
        with reading_unchanged(file) as connection:
            rows = connection.execute(_OF_TRANSACTIONS)
    except (SqlError, OSError) as error:
        yield Finding("transactions", FindingState.WARN, f"{file} cannot be read: {error}")
        return
    found = sorted({str(row[0]).removeprefix(f"{ROOT}/").removesuffix("/persistent") for row in rows})
    if not found:
        return
    named = ", ".join(found[:_MOST_NAMED]) + (" and others" if len(found) > _MOST_NAMED else "")
    yield Finding(
        "transactions",
        FindingState.WARN,
        f"transactions are disabled, and topics in {named} have had transactions: messages of aborted and "
        "open ones are delivered, and messages that open ones acknowledged are delivered again",
        "set transactionCoordinatorEnabled=true",
    )


def _existing(folder: Path) -> Path:
    """Returns the folder, or its nearest existing parent."""
    folder = folder.absolute()
    return next((each for each in (folder, *folder.parents) if each.exists()), Path("/"))


def space(bounds: DiskGuardSettings, data_dir: Path) -> Finding:
    """Checks the free space on the device of the data directory against the thresholds at which publishing
    stops."""
    disk = RealDisk(_existing(data_dir))
    use = DiskUse(disk.total_bytes(), disk.free_bytes())
    found = f"{data_dir}: {use.free >> 20:,} MiB free, {use.share:.1%} used"
    if use.share > bounds.full_share or use.free < bounds.reserve_bytes:
        limit = (
            f"above {bounds.full_share:.0%} or below {bounds.reserve_bytes >> 20} MiB free, "
            "publishing is refused"
        )
        return Finding(
            "disk space", FindingState.FAIL, f"{found}; {limit}", "free space, or use another --data-dir"
        )
    if use.share > bounds.warn_share:
        limit = f"at {bounds.full_share:.0%}, publishing is refused"
        return Finding("disk space", FindingState.WARN, f"{found}; {limit}", "free space soon")
    return Finding("disk space", FindingState.OK, found)


def sync_speed(data_dir: Path) -> Finding:
    """Measures the duration of commits, which are written in the same way as the broker's log."""
    folder = _existing(data_dir)
    if not os.access(folder, os.W_OK | os.X_OK):
        advice = "make it writable for the user that runs the broker, or use another --data-dir"
        return Finding("sync speed", FindingState.FAIL, f"{folder} cannot be written to", advice)
    with tempfile.TemporaryDirectory(prefix=".magnetar-doctor-", dir=folder) as temporary:
        taken = _syncs(temporary)
    usual, worst = median(taken), max(taken)
    found = (
        f"{folder}: median {usual * 1000:.2f} ms, maximum {worst * 1000:.2f} ms of {len(taken)} "
        "commits of 4 KiB"
    )
    if usual > SLOW_SYNC_SECONDS:
        advice = (
            "every publish waits for a sync: use a local disk, or one with a write cache that "
            "survives a power failure"
        )
        return Finding("sync speed", FindingState.WARN, found, advice)
    return Finding("sync speed", FindingState.OK, found)


def _syncs(folder: str) -> list[float]:
    """Returns the duration of each measured commit, in seconds; a commit writes one block (4 KiB)."""
    file = RealDisk(folder).open("commits", create=True)
    try:
        file.allocate(_SYNCS * len(_BLOCK))
        taken: list[float] = []
        while len(taken) < _SYNCS and sum(taken) < _MOST_SECONDS:
            begun = time.perf_counter()
            file.write_durably(_BLOCK, len(taken) * len(_BLOCK))
            taken.append(time.perf_counter() - begun)
        return taken
    finally:
        file.close()


class FindingState(Enum):
    """The severity of a finding."""

    OK = "ok"
    WARN = "warn"
    """The broker works, but not as well as it could."""
    FAIL = "fail"
    """A start would fail, or publishing would be impossible."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report: the checked property and its state."""

    subject: str
    state: FindingState
    found: str
    advice: str = ""
    """The advice to the operator; empty: no action is needed."""


def machine() -> Iterator[Finding]:
    """Checks the machine for any broker, and yields each finding as soon as it is known."""
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
    """Checks whether the performance-critical modules (:mod:`magnetar.hot`) are compiled."""
    status = hot.status(hot.SERVING)
    warning = status.warning()
    if warning is None:
        return Finding("hot modules", FindingState.OK, f"all {len(status.forms)} are compiled")
    found, _, _advice = warning.partition(" (")
    return Finding("hot modules", FindingState.WARN, found, "python -m magnetar.hot build")


def open_files() -> Finding:
    """Checks the limit of open files; a broker raises its soft limit to the hard limit."""
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
