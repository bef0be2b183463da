"""The real world, except that time can be advanced: timers that are due by then fire at once."""

from __future__ import annotations

from magnetar.io.advancing.io import AdvancingIo
from magnetar.io.advancing.loop import AdvancingLoop, QuietLoop

__all__ = ["AdvancingIo", "AdvancingLoop", "QuietLoop"]
