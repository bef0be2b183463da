"""What simulated connections meet."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass


@dataclass
class Conditions:
    """What connections that are made from now on meet. Times in virtual seconds, sizes in bytes."""

    latency: float = 0.001
    """The longest time a piece is under way."""
    window: int = 64 << 10
    """Sent and not read by the other side, at most: a slow reader holds its sender back."""
    send_buffer: int = 64 << 10
    """What the operating system takes from a sender; ``get_write_buffer_size`` counts what is beyond it."""
    pieces: int = 1
    """Into how many pieces a flight is cut at most; 0: into single bytes, as long as it is small."""
    refused: float = 0.0
    """Share of connections that are refused."""
    unanswered: float = 0.0
    """Share of connections that time out."""
    cut: float = 0.0
    """Share of connections that are reset after a random number of flights."""
    longest_life: int = 200
    """Flights, of both directions, after which such a connection is reset at the latest."""
    connect_timeout: float = 10.0
