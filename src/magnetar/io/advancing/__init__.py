"""The real interfaces, with a clock that a program can advance; timers that become due then fire at once."""

from __future__ import annotations

from magnetar.io.advancing.io import AdvancingIo
from magnetar.io.advancing.loop import AdvancingLoop, QuietLoop

__all__ = ["AdvancingIo", "AdvancingLoop", "QuietLoop"]
