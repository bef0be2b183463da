"""Ids are unsigned 64 bit on the wire and signed inside; commands outside the fast path convert them here."""

from __future__ import annotations

_SIGN = 1 << 63
_MASK = (1 << 64) - 1


def signed(number: int) -> int:
    """An unsigned 64-bit id of the wire as the signed number it stands for."""
    return number - (1 << 64) if number & _SIGN else number


def unsigned(number: int) -> int:
    """A signed id as the wire has it."""
    return number & _MASK
