"""The machine's counters, as Linux reports them."""

from __future__ import annotations

import os
from pathlib import Path

from magnetar.broker.load.reporter import HostSample

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_IDLE = (3, 4)
"""Fields of a processor's line with idle time: idle, and waiting for a disk."""
_ETHERNET = "1"
_KBITS_PER_MBIT = 1000
_KBITS_PER_GBIT = 1_000_000


class LinuxHost:
    """See :class:`magnetar.broker.load.reporter.Host`; figures that the system does not report are 0."""

    def __init__(self, nic_gbps: float | None) -> None:
        """:param nic_gbps: of all network cards together; None: as the system reports"""
        self._nic_kbits = None if nic_gbps is None else nic_gbps * _KBITS_PER_GBIT

    def sample(self) -> HostSample:
        cards = _cards()
        speed = self._nic_kbits
        if speed is None:
            speed = sum(max(0, _number(card / "speed")) for card in cards) * float(_KBITS_PER_MBIT)
        return HostSample(
            processor_seconds=_processor_seconds(),
            cores=float(len(os.sched_getaffinity(0))),
            resident_bytes=_resident_bytes(),
            memory_bytes=_memory_bytes(),
            received_bytes=sum(_number(card / "statistics/rx_bytes") for card in cards),
            sent_bytes=sum(_number(card / "statistics/tx_bytes") for card in cards),
            nic_kbits=speed,
        )


def _text(path: Path) -> str:
    """Returns empty text if the file does not exist or cannot be read now (a card without a cable)."""
    try:
        return path.read_text("ascii", "replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.lstrip("-").isdigit() else 0


def _processor_seconds() -> float:
    fields = _text(Path("/proc/stat")).partition("\n")[0].split()[1:9]
    return sum(int(field) for index, field in enumerate(fields) if index not in _IDLE) / _TICKS


def _resident_bytes() -> int:
    fields = _text(Path("/proc/self/statm")).split()
    return int(fields[1]) * _PAGE if len(fields) > 1 else 0


def _memory_bytes() -> int:
    """Returns the memory of the machine, or the lower limit of the process's control group."""
    total = os.sysconf("SC_PHYS_PAGES") * _PAGE
    confined = _number(Path("/sys/fs/cgroup/memory.max"))
    return min(total, confined) if confined else total


def _cards() -> list[Path]:
    """Returns the physical network cards."""
    try:
        found = sorted(Path("/sys/class/net").iterdir())
    except OSError:
        return []
    return [card for card in found if _text(card / "type") == _ETHERNET and (card / "device").exists()]
