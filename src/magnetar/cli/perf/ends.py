"""What sends and what receives, as the load generator sees it; raw or through the client's own classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from magnetar.cli.perf.hot_raw import Histogram, OrderCheck, Window
from magnetar.cli.perf.pacing import SharedClock


@dataclass
class Shared:
    """What all ends of a run share."""

    clock: SharedClock
    window: Window
    failures: list[str] = field(default_factory=list)
    """Why the run is void, as soon as something is known."""
    received: int = 0
    """Messages, over all receivers."""
    on_received: Callable[[], object] = lambda: None
    """Called when messages were received."""

    def failed(self, reason: str) -> None:
        if reason not in self.failures:
            self.failures.append(reason)


@dataclass(frozen=True)
class SendSettings:
    size: int
    """Bytes of a content."""
    batch: int
    """The most messages of a batch; 1: no batches."""
    batch_bytes: int
    batch_delay_ms: float
    max_outstanding: int
    """Messages without a receipt, for each producer."""
    contents: tuple[bytes, ...]
    """Taken in turn; raw ends have one."""
    compression: int
    access_mode: int
    producer_name: str
    send_timeout_millis: int
    chunking: bool = False
    """Contents larger than an entry are sent in several."""


@dataclass(frozen=True)
class ReceiveSettings:
    subscription: str
    consumer_type: int
    queue: int
    """Permits, in messages."""
    earliest: bool
    cumulative: bool
    ack_delay_millis: float
    ack_group: int
    """Ids in one ACK."""
    batch_index_ack: bool
    replicated: bool
    rate: float
    """Messages a second that are taken at most; 0: no bound."""
    chunks: Mapping[str, Any] = field(default_factory=dict)
    """What consumers of the client are told of messages in chunks, by the names of its options."""


class PerfSender(Protocol):
    sent: int
    """Messages handed to the connection."""
    confirmed: int
    """Messages with a receipt."""
    latencies: Histogram

    async def open(self, on_room: Callable[[], object]) -> None: ...
    def room(self) -> int:
        """Messages that may be sent now."""
        ...

    def send(self, count: int, due: int, interval: int) -> None:
        """Sends messages of which the first was due at ``due`` and each next ``interval`` ns later."""
        ...

    def flush(self) -> None: ...
    async def close(self) -> None: ...


class Receiver(Protocol):
    order: OrderCheck | None

    @property
    def received(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def foreign(self) -> int: ...
    @property
    def latencies(self) -> Histogram: ...
    async def open(self) -> None: ...
    def flush(self) -> None:
        """Sends acknowledgements that gather."""
        ...

    async def close(self) -> None: ...
