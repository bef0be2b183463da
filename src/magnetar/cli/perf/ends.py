"""The interfaces of the load generator's senders and receivers. One implementation uses raw frames, the other
the client's classes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from magnetar.cli.perf.hot_raw import Histogram, OrderCheck, Window
from magnetar.cli.perf.pacing import SharedClock


@dataclass
class Shared:
    """The state that all senders and receivers of a run share."""

    clock: SharedClock
    window: Window
    failures: list[str] = field(default_factory=list)
    """Reasons why the measurement is not valid."""
    received: int = 0
    """Total number of messages that the receivers have received."""
    on_received: Callable[[], object] = lambda: None
    """Called when messages were received."""

    def failed(self, reason: str) -> None:
        if reason not in self.failures:
            self.failures.append(reason)


@dataclass(frozen=True)
class SendSettings:
    size: int
    """Size of a payload in bytes."""
    batch: int
    """Maximum number of messages in a batch; 1: no batches."""
    batch_bytes: int
    batch_delay_ms: float
    max_outstanding: int
    """Maximum number of messages without a receipt, for each producer."""
    contents: tuple[bytes, ...]
    """Payloads of the messages, which are used in turn; raw producers support only one."""
    compression: int
    access_mode: int
    producer_name: str
    send_timeout_millis: int
    chunking: bool = False
    """Whether messages that are larger than the largest entry are sent in chunks."""


@dataclass(frozen=True)
class ReceiveSettings:
    subscription: str
    consumer_type: int
    queue: int
    """Size of the receiver queue, in messages."""
    earliest: bool
    cumulative: bool
    ack_delay_millis: float
    ack_group: int
    """Maximum number of message ids in one ACK command."""
    batch_index_ack: bool
    replicated: bool
    rate: float
    """Maximum number of received messages per second; 0: no limit."""
    chunks: Mapping[str, Any] = field(default_factory=dict)
    """Consumer options for chunked messages."""


class PerfSender(Protocol):
    sent: int
    """Number of messages that were passed to the connection."""
    confirmed: int
    """Number of messages with a receipt."""
    latencies: Histogram

    async def open(self, on_room: Callable[[], object]) -> None: ...
    def room(self) -> int:
        """Returns the number of messages that can be sent now."""
        ...

    def send(self, count: int, due: int, interval: int) -> None:
        """Sends ``count`` messages, which were due at regular intervals.

        :param due: time at which the first message was due, in nanoseconds of the load generator's clock
        :param interval: nanoseconds between the times at which messages were due
        """
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
