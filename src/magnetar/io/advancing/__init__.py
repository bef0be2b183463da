"""The real interfaces, except that the clock can be advanced; timers that this makes due fire at once."""

from __future__ import annotations

from magnetar.io.advancing.io import AdvancingIo
from magnetar.io.advancing.loop import AdvancingLoop, QuietLoop

__all__ = ["AdvancingIo", "AdvancingLoop", "QuietLoop"]
