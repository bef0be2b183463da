"""The reasons why producers or messages are refused, or publishing waits, recorded where the broker decides.

Each refusal is counted, with its time and text; accepted messages cost nothing. A lasting condition (a rate
is used up, a topic is terminated) is a state of the object that decides on it, and is read on request.
"""

from __future__ import annotations

from enum import Enum

from magnetar.errors import BrokerError, EncryptionRequired
from magnetar.lazy_dataclass import dataclass


class Hindrance(Enum):
    """The reason why messages cannot be published; the value is its name in answers and metrics."""

    MOVING = "moving"
    """The topic is being unloaded or deleted, or is lost to another broker."""
    TERMINATED = "terminated"
    MIGRATED = "migrated"
    """Clients are redirected to another cluster."""
    STORAGE_FULL = "storage_full"
    """The disk is full, or no ledger can be written."""
    BACKLOG_QUOTA = "backlog_quota"
    """The backlog of the subscriptions has reached its quota."""
    MAX_PRODUCERS = "max_producers"
    EXCLUSIVE_PRODUCER = "exclusive_producer"
    """Another producer has exclusive access or waits for it."""
    NAME_TAKEN = "name_taken"
    """A producer of that name is connected."""
    SCHEMA_INCOMPATIBLE = "schema_incompatible"
    ENCRYPTION_REQUIRED = "encryption_required"
    MESSAGE_REFUSED = "message_refused"
    """A message is too large, has a delivery time too far in the future, or may be a duplicate of a pending
    one."""
    NOT_STORED = "not_stored"
    """Entries could not be written."""
    PUBLISH_RATE = "publish_rate"
    """The publish rate was exceeded; connections are not read until the rate is met again."""
    IN_FLIGHT = "in_flight"
    """Too many bytes are pending, so that connections are not read."""
    NOTHING = "nothing"
    """Nothing prevents publishing."""

    @classmethod
    def of_refusal(cls, error: BrokerError) -> Hindrance:
        """Returns the reason why a message was refused, from the error that the client got."""
        return cls.ENCRYPTION_REQUIRED if isinstance(error, EncryptionRequired) else cls.MESSAGE_REFUSED


@dataclass(slots=True)
class Refusal:
    """All refusals of one kind since the topic was loaded."""

    first_ms: int
    """The time of the first refusal, in milliseconds since 1970; ``last_ms`` is the time of the last one."""
    last_ms: int
    text: str
    """The answer to the last refused client."""
    times: int = 1


class Refusals:
    """The refusals of one topic, one record for each kind."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: dict[Hindrance, Refusal] = {}

    def note(self, kind: Hindrance, text: str, now_ms: int) -> None:
        """Records a refusal with its text and time."""
        known = self.known.get(kind)
        if known is None:
            self.known[kind] = Refusal(now_ms, now_ms, text)
        else:
            known.last_ms, known.text = now_ms, text
            known.times += 1
