"""Why producers are refused, or what they publish is refused or waits: said where it is decided.

Refusals are rare, and none is on the way of a message that is taken: each is counted with its time and its
text. What holds on (a rate that is used up, a topic that is terminated) is a state of whoever decides it, and
looked at when somebody asks.
"""

from __future__ import annotations

from enum import Enum

from magnetar.lazy_dataclass import dataclass


class Hindrance(Enum):
    """Why nothing can be published; the value is its name in answers and metrics."""

    MOVING = "moving"
    """The topic is being unloaded or deleted, or is lost to another broker."""
    TERMINATED = "terminated"
    MIGRATED = "migrated"
    """Clients are sent to another cluster."""
    STORAGE_FULL = "storage_full"
    """There is no room on the disk, or no ledger can be written."""
    BACKLOG_QUOTA = "backlog_quota"
    """Subscriptions have not consumed more than they may leave."""
    MAX_PRODUCERS = "max_producers"
    EXCLUSIVE_PRODUCER = "exclusive_producer"
    """Another producer has exclusive access, or somebody waits for the others to leave."""
    NAME_TAKEN = "name_taken"
    """A producer of that name is connected."""
    SCHEMA_INCOMPATIBLE = "schema_incompatible"
    ENCRYPTION_REQUIRED = "encryption_required"
    MESSAGE_REFUSED = "message_refused"
    """A message is too large, or is to be delivered too late, or may be a duplicate of one on its way."""
    NOT_STORED = "not_stored"
    """Entries could not be written."""
    PUBLISH_RATE = "publish_rate"
    """What is published has a rate, and connections are not read until it is kept again."""
    IN_FLIGHT = "in_flight"
    """So much is on its way to the disk that connections are not read."""
    NOTHING = "nothing"
    """Nothing is in the way."""


@dataclass(slots=True)
class Refusal:
    """All refusals of one kind since a topic was loaded."""

    first_ms: int
    """Since 1970; so is the next."""
    last_ms: int
    text: str
    """What the last client was told."""
    times: int = 1


class Refusals:
    """Those of one topic, one for each kind."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[Hindrance, Refusal] = {}

    def note(self, kind: Hindrance, text: str, now_ms: int) -> None:
        """Somebody was refused, or will be."""
        known = self.known.get(kind)
        if known is None:
            self.known[kind] = Refusal(now_ms, now_ms, text)
        else:
            known.last_ms, known.text = now_ms, text
            known.times += 1
