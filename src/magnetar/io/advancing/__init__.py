"""The world as it is, but for time, which can be put ahead: what was to happen meanwhile happens at once."""

from __future__ import annotations

from magnetar.io.advancing.io import AdvancingIo
from magnetar.io.advancing.loop import AdvancingLoop, QuietLoop

__all__ = ["AdvancingIo", "AdvancingLoop", "QuietLoop"]
