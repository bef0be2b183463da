"""What of a broker's load others in the process ask for."""

from __future__ import annotations

from magnetar.broker.load.manager import LoadManager
from magnetar.broker.load.reporter import Reporter
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LoadDesk:
    """Of a broker that has others beside it."""

    manager: LoadManager
    reporter: Reporter
