"""What other parts of the process need of a broker's load management."""

from __future__ import annotations

from typing import TYPE_CHECKING

from magnetar.lazy_dataclass import dataclass

if TYPE_CHECKING:
    # A standalone broker does not import these modules.
    from magnetar.broker.load.manager import LoadManager
    from magnetar.broker.load.reporter import Reporter


@dataclass(frozen=True, slots=True)
class LoadDesk:
    """The load management of a broker in a cluster."""

    manager: LoadManager
    reporter: Reporter
