"""Rules for all names: the length, and the names that cannot be a piece of a path in the metadata."""

from __future__ import annotations

MAX_NAME_BYTES = 1000
"""The maximum size, in bytes of UTF-8, of a tenant, a namespace, a subscription, or a topic with its tenant
and namespace. With this maximum, paths in the metadata (whose encoding can turn one byte into three) and
lists in one frame stay far below their own limits.
"""
_SHOWN = 100
"""The number of characters of an overlong name that an error shows."""


def check_length(kind: str, name: str) -> None:
    """Checks the length of a name.

    :raises InvalidName: the name is longer than :data:`MAX_NAME_BYTES`
    """
    if len(name) * 4 <= MAX_NAME_BYTES:
        return
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MAX_NAME_BYTES:
        shown = f"{name[:_SHOWN]}…"
        raise InvalidName(
            f"invalid {kind} name {shown!r}: it has {size} bytes, at most {MAX_NAME_BYTES} are allowed"
        )


def check_path_piece(kind: str, name: str) -> None:
    """Checks a name that becomes a component of a path.

    :raises InvalidName: the name is ``.`` or ``..``, which ZooKeeper does not allow in paths
    """
    if name in (".", ".."):
        raise InvalidName(
            f"invalid {kind} name {name!r}: it has a special meaning in paths, so use another name"
        )


def check_subscription_name(name: str) -> None:
    """Checks the name of a subscription.

    :raises InvalidName: the name is empty, too long, or ``.`` or ``..``
    """
    if not name:
        raise InvalidName("invalid subscription name '': it is empty")
    check_length("subscription", name)
    check_path_piece("subscription", name)


class InvalidName(ValueError):
    """The name of a topic, namespace or bundle breaks the rules; the message names the part and the rule."""
