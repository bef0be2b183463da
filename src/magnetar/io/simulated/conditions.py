"""The conditions of simulated connections."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass


@dataclass
class Conditions:
    """The conditions of connections that are made from now on. Times in virtual seconds, sizes in bytes."""

    latency: float = 0.001
    """The longest travel time of a piece."""
    window: int = 64 << 10
    """The most that is sent and not yet read by the other side: a slow reader holds its sender back."""
    send_buffer: int = 64 << 10
    """What the operating system accepts from a sender; ``get_write_buffer_size`` counts what is beyond it."""
    pieces: int = 1
    """The most pieces that a flight is cut into; 0: into single bytes, as long as it is small."""
    refused: float = 0.0
    """The share of connections that are refused."""
    unanswered: float = 0.0
    """The share of connections that time out."""
    cut: float = 0.0
    """The share of connections that are reset after a random number of flights."""
    longest_life: int = 200
    """The most flights, of both directions, before such a connection is reset."""
    connect_timeout: float = 10.0
