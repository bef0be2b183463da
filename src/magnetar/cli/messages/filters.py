"""Filters of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from magnetar.client.message import Message


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter; all conditions must hold."""

    key: str | None = None
    """A glob; a message without a key does not match."""
    properties: Sequence[tuple[str, str]] = ()
    """Names with globs of their values."""
    since_ms: int = 0
    until_ms: int | None = None
    """Range of publish times since 1970; ``until`` is exclusive."""

    def has(self, message: Message) -> bool:
        published = message.publish_timestamp()
        if published < self.since_ms or (self.until_ms is not None and published >= self.until_ms):
            return False
        if self.key is not None and not (
            message.has_partition_key() and fnmatchcase(message.partition_key(), self.key)
        ):
            return False
        if not self.properties:
            return True
        given = message.properties()
        return all(name in given and fnmatchcase(given[name], glob) for name, glob in self.properties)
