"""Keys and values in one: contents of KEY_VALUE messages that are inline, and the definitions of both."""

from __future__ import annotations

__all__ = ["join", "split"]

_NONE = -1


def join(key: bytes | None, value: bytes | None) -> bytes:
    """Both, each behind its length in four bytes; None has the length -1."""
    return b"".join(
        (_NONE if each is None else len(each)).to_bytes(4, "big", signed=True) + (each or b"")
        for each in (key, value)
    )


def split(data: bytes) -> tuple[bytes | None, bytes | None]:
    """What :func:`join` made; what stands behind it is left out.

    :raises ValueError: the lengths do not fit
    """
    parts: list[bytes | None] = []
    position = 0
    for _ in range(2):
        if position + 4 > len(data):
            raise ValueError("it ends before its second part")
        size = int.from_bytes(data[position : position + 4], "big", signed=True)
        position += 4
        if size == _NONE:
            parts.append(None)
            continue
        if size < 0 or position + size > len(data):
            raise ValueError(f"a part of {size} bytes does not fit")
        parts.append(data[position : position + size])
        position += size
    return parts[0], parts[1]
