"""What of a broker's load others in the process ask for."""

from __future__ import annotations

from dataclasses import dataclass

from magnetar.broker.load.manager import LoadManager
from magnetar.broker.load.reporter import Reporter


@dataclass(frozen=True, slots=True)
class LoadDesk:
    """Of a broker that has others beside it."""

    manager: LoadManager
    reporter: Reporter
