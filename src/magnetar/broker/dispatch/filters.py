"""Filters of entries: code of an operator that says which entries a subscription's consumers get.

They see each entry when it is about to be sent to a consumer, and again when it is sent again. With none of
them nothing is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Protocol

from magnetar.lazy_dataclass import dataclass
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import broker_metadata_size, parse_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

log = logging.getLogger(__name__)


class FilterResult(Enum):
    """What becomes of an entry."""

    ACCEPT = "accept"
    """It is sent."""
    REJECT = "reject"
    """It is acknowledged for the subscription and not sent."""
    RESCHEDULE = "reschedule"
    """It is not sent now; a filter is asked again later."""


@dataclass(frozen=True, slots=True)
class FilterContext:
    """To whom an entry would be sent. The mappings are not to be changed."""

    topic: str
    """Full name."""
    subscription: str
    subscription_properties: Mapping[str, str]
    consumer: str
    consumer_metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FilteredEntry:
    """An entry: a message, or a whole batch."""

    position: tuple[int, int]
    """Ledger id, entry id."""
    data: bytes
    """As its producer sent it."""
    metadata: MessageMetadata


class EntryFilter(Protocol):
    """Made once a broker, without arguments; asked in the broker's loop: it must not wait for anything."""

    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult: ...


class UnknownFilter(LookupError):
    """There is no filter of that name, or none that policies may name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Entry filter '{name}' not found")


FindFilters = Callable[[Sequence[str]], Sequence[EntryFilter]]
"""The filters of these names.

:raises UnknownFilter: there is none of one of them
"""


def no_filters(names: Sequence[str]) -> Sequence[EntryFilter]:
    """Where policies may name none."""
    for name in names:
        raise UnknownFilter(name)
    return ()


class EntryFilters:
    """All filters of one subscription, and how many messages went through them."""

    def __init__(self, filters: Sequence[EntryFilter]) -> None:
        self.filters = filters
        self.processed = 0
        self.accepted = 0
        self.rejected = 0
        self.rescheduled = 0

    def judge(
        self, position: tuple[int, int], data: bytes, messages: int, context: FilterContext
    ) -> FilterResult:
        """One that rejects an entry decides; one that wants it later decides over those that accept it.

        What has no readable metadata is sent. What a filter cannot judge is asked again later.

        :param messages: how many the entry has
        """
        self.processed += messages
        result = self.ask(position, data, context)
        if result is FilterResult.ACCEPT:
            self.accepted += messages
        elif result is FilterResult.REJECT:
            self.rejected += messages
        else:
            self.rescheduled += messages
        return result

    def ask(self, position: tuple[int, int], data: bytes, context: FilterContext) -> FilterResult:
        """Like :meth:`judge`, and counts nothing."""
        try:
            metadata = parse_entry(data, verify_checksum=False).metadata
        except EntryError:
            # Its sizes were checked when it was published; what its producer wrote between them was not.
            return FilterResult.ACCEPT
        entry = FilteredEntry(position, data[broker_metadata_size(data, 0) :], metadata)
        found = FilterResult.ACCEPT
        for each in self.filters:
            try:
                result = each.filter_entry(entry, context)
            except Exception:
                log.exception(
                    "an entry filter failed",
                    extra={"filter": type(each).__name__, "topic": context.topic, "entry": str(position)},
                )
                result = FilterResult.RESCHEDULE
            if result is FilterResult.REJECT:
                return result
            if result is FilterResult.RESCHEDULE:
                found = result
        return found
