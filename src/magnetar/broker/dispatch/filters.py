"""Entry filters: code of an operator that decides which entries a subscription's consumers get.

A filter sees each entry when it is about to be sent to a consumer, and again when it is redelivered. Without
filters there is no extra work.
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
    """A filter's verdict on an entry."""

    ACCEPT = "accept"
    """The entry is sent."""
    REJECT = "reject"
    """The entry is acknowledged for the subscription and not sent."""
    RESCHEDULE = "reschedule"
    """The entry is not sent now; the filter judges it again later."""


@dataclass(frozen=True, slots=True)
class FilterContext:
    """The subscription and the consumer of an entry. Filters must not change the two mappings."""

    topic: str
    """Full name of the topic."""
    subscription: str
    subscription_properties: Mapping[str, str]
    consumer: str
    consumer_metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FilteredEntry:
    """An entry as filters see it: a message, or a whole batch."""

    position: tuple[int, int]
    """Ledger id and entry id."""
    data: bytes
    """The entry as its producer sent it."""
    metadata: MessageMetadata


class EntryFilter(Protocol):
    """An entry filter. It is created once per broker, without arguments, and called in the broker's event
    loop, so it must not block."""

    def filter_entry(self, entry: FilteredEntry, context: FilterContext) -> FilterResult: ...


class UnknownFilter(LookupError):
    """The filter does not exist, or policies are not allowed to name it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Entry filter '{name}' not found")


FindFilters = Callable[[Sequence[str]], Sequence[EntryFilter]]
"""Returns the filters with the given names.

:raises UnknownFilter: one of the filters does not exist
"""


def no_filters(names: Sequence[str]) -> Sequence[EntryFilter]:
    """Refuses all names; used where policies are not allowed to name filters.

    :raises UnknownFilter: ``names`` is not empty
    """
    for name in names:
        raise UnknownFilter(name)
    return ()


def fitting_filters(known: EntryFilters | None, wanted: Sequence[EntryFilter]) -> EntryFilters | None:
    """Returns the filters of a subscription: ``known``, with its counts, if it has the wanted filters,
    otherwise new filters; None if no filters are wanted."""
    if (known.filters if known is not None else ()) == wanted:
        return known
    return EntryFilters(wanted) if wanted else None


class EntryFilters:
    """All filters of one subscription, with counts of the messages they judged."""

    def __init__(self, filters: Sequence[EntryFilter]) -> None:
        self.filters = filters
        self.processed = 0
        self.accepted = 0
        self.rejected = 0
        self.rescheduled = 0

    def judge(
        self, position: tuple[int, int], data: bytes, messages: int, context: FilterContext
    ) -> FilterResult:
        """Combines the filters' verdicts: returns REJECT if any filter rejects the entry, else RESCHEDULE if
        any reschedules it, else ACCEPT.

        An entry whose metadata cannot be parsed is accepted. If a filter raises, the entry is rescheduled.

        :param messages: the number of messages in the entry
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
        """Judges an entry like :meth:`judge`, without counting its messages."""
        try:
            metadata = parse_entry(data, verify_checksum=False).metadata
        except EntryError:
            # The broker checked its sizes when it was published, but not the metadata between them.
            return FilterResult.ACCEPT
        entry = FilteredEntry(position, data[broker_metadata_size(data, 0) :], metadata)
        found = FilterResult.ACCEPT
        for each in self.filters:
            try:
                result = each.filter_entry(entry, context)
            except Exception:
                log.exception(
                    "entry filter failed",
                    extra={"filter": type(each).__name__, "topic": context.topic, "entry": str(position)},
                )
                result = FilterResult.RESCHEDULE
            if result is FilterResult.REJECT:
                return result
            if result is FilterResult.RESCHEDULE:
                found = result
        return found
