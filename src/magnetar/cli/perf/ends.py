"""Interfaces of senders and receivers of the load generator, raw or with the client's classes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from magnetar.cli.perf.hot_raw import Histogram, OrderCheck, Window
from magnetar.cli.perf.pacing import SharedClock


@dataclass
class Shared:
    """The common state of all ends of a run."""

    clock: SharedClock
    window: Window
    failures: list[str] = field(default_factory=list)
    """Reasons why the run is void."""
    received: int = 0
    """Messages received by all receivers."""
    on_received: Callable[[], object] = lambda: None
    """Called when messages were received."""

    def failed(self, reason: str) -> None:
        if reason not in self.failures:
            self.failures.append(reason)


@dataclass(frozen=True)
class SendSettings:
    size: int
    """Size of a content in bytes."""
    batch: int
    """Largest number of messages in a batch; 1: no batches."""
    batch_bytes: int
    batch_delay_ms: float
    max_outstanding: int
    """Limit of messages without a receipt, for each producer."""
    contents: tuple[bytes, ...]
    """The contents, which are used in turn; raw ends have one."""
    compression: int
    access_mode: int
    producer_name: str
    send_timeout_millis: int
    chunking: bool = False
    """Send contents that are larger than an entry in chunks."""


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
    """Limit of received messages per second; 0: no limit."""
    chunks: Mapping[str, Any] = field(default_factory=dict)
    """Consumer options for chunked messages."""


class PerfSender(Protocol):
    sent: int
    """Messages passed to the connection."""
    confirmed: int
    """Messages with a receipt."""
    latencies: Histogram

    async def open(self, on_room: Callable[[], object]) -> None: ...
    def room(self) -> int:
        """Returns the number of messages that may be sent now."""
        ...

    def send(self, count: int, due: int, interval: int) -> None:
        """Sends messages; the first was due at ``due``, and each further one ``interval`` ns later."""
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
        """Sends collected acknowledgements."""
        ...

    async def close(self) -> None: ...
