"""What of a broker's load others in the process ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    # A broker without others beside it has none, and reads none of their modules.
    from magnetar.broker.load.manager import LoadManager
    from magnetar.broker.load.reporter import Reporter


@dataclass(frozen=True, slots=True)
class LoadDesk:
    """Of a broker that has others beside it."""

    manager: LoadManager
    reporter: Reporter
