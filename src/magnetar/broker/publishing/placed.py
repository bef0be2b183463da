"""Publishing to a shadow topic: its source has stored the entries and names their positions."""

from __future__ import annotations

from array import array

from magnetar.broker.publishing.admission import Admission, JudgedPart
from magnetar.broker.publishing.producer import Producer, Publish
from magnetar.errors import BrokerError, NotAllowed
from magnetar.managed_ledger.position import Position

SHADOW_REFUSES = "Cannot send messages to a shadow topic"
"""The text is that of Apache Pulsar 4.0."""


class PlacedPublish(Publish):
    """An entry with its position in the source topic."""

    __slots__ = ("position",)

    def __init__(
        self, producer: Producer, sequence_id: int, position: Position, messages: int, started: float
    ) -> None:
        super().__init__(producer, array("q", (sequence_id,)), array("q", (-1,)), messages, started)
        self.position = position
        self.completes = False


class ShadowAdmission(Admission):
    """Refuses entries without a position: messages are published to the source topic."""

    def __init__(self) -> None:
        super().__init__(None, encrypted=False, max_size=0)

    def judge(
        self,
        name: str,
        first: array[int],
        highest: array[int],
        buffer: bytes,
        starts: array[int],
        ends: array[int],
        *,
        chunked: bool,
    ) -> list[JudgedPart]:
        """See :meth:`Admission.judge`."""
        return [JudgedPart(0, len(first), NotAllowed(SHADOW_REFUSES))]

    @property
    def measures(self) -> bool:
        return True

    def refusal(self, buffer: bytes, start: int, end: int, *, encrypted: bool) -> BrokerError:
        """See :meth:`Admission.refusal`."""
        return NotAllowed(SHADOW_REFUSES)
