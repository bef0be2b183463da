"""Converts ids, which are unsigned 64 bit on the wire and signed inside, for commands outside the
fast path."""

from __future__ import annotations

_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def signed(number: int) -> int:
    """Returns the signed number for an unsigned 64-bit id of the wire."""
    return number - (1 << 64) if number & _SIGN else number


def unsigned(number: int) -> int:
    """Returns the unsigned form of a signed id, as on the wire."""
    return number & _MASK
