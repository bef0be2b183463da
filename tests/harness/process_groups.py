"""Processes of a session, to be looked at and to be killed together: a driver, its JVM and its workers."""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["arguments", "kill", "memory", "processes_of", "processor_seconds"]


def processes_of(session: int) -> list[int]:
    """The processes of a session; the JVM and the workers of a driver do not leave it."""
    return [int(each.name) for each in Path("/proc").iterdir() if _belongs(each, session)]


def _belongs(entry: Path, session: int) -> bool:
    try:
        return entry.name.isdigit() and os.getsid(int(entry.name)) == session
    except ProcessLookupError:
        return False


def arguments(pid: int) -> list[bytes]:
    """The command line of a process; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def memory(pid: int) -> int:
    """Bytes that a process keeps in memory, its part of what it shares; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def processor_seconds(pid: int) -> float:
    """What a process has used of processors so far; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def kill(pid: int) -> None:
    """SIGKILL; nothing when it is gone."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
