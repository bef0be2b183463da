"""Reads offloaded ledgers of a topic directly from tiered storage, with the credentials in the query's
options.

The options ``offload.*`` configure the storage, and the broker lists the offloaded ledgers. All other ledgers
are read through the broker, and so are ledgers that are missing in the storage. If a topic has aborted
transactions, and the broker does not list them (Apache Pulsar never does), the whole topic is read through
the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from uuid import UUID

from magnetar.naming.topic_name import TopicName
from magnetar.offload import driver_for
from magnetar.offload.cache import PieceCache
from magnetar.offload.interface import (
    OffloadDriver,
    OffloadedLedgerMissing,
    OffloadedReader,
    OffloadError,
    OffloadKey,
    OffloadMisconfigured,
)
from magnetar.offload.settings import DRIVER
from magnetar.spark.codec.rows import EntryPart
from magnetar.spark.connection import Connection
from magnetar.spark.errors import InvalidOption, SparkSourceError
from magnetar.spark.ledgers import Range
from magnetar.spark.reading.segments import is_aborted, part_of

__all__ = ["EntriesOf", "entries_of"]

log = logging.getLogger(__name__)

EntriesOf = Callable[[Connection, str, Sequence[Range]], Generator[EntryPart]]
"""Yields the entries of consecutive ranges of a topic."""
_CACHE_BYTES = 16 << 20
_READ_BYTES = 4 << 20
"""Total size of the entries that one call of the reader returns, in bytes."""


def entries_of(
    connection: Connection, topic: str, ranges: Sequence[Range], rest: EntriesOf
) -> Generator[EntryPart]:
    """Yields the entries of consecutive ranges; see :func:`magnetar.spark.reading.entries.entries_of`.

    :param rest: reads the entries that are not in tiered storage
    :raises InvalidOption: an option of tiered storage cannot be used, or a library is missing
    :raises SparkSourceError: the store refuses the credentials, does not answer, or its data is damaged
    :raises AdminError: the broker does not list the offloaded ledgers
    """
    uuids = connection.admin.offloaded_ledgers(topic)
    aborted = connection.admin.aborted_transactions(topic) if uuids else set()
    if aborted is None:
        log.warning("reading %s without tiered storage: it has aborted transactions", topic)
        uuids, aborted = {}, set()
    try:
        with closing(_driver(connection)) as driver:
            waiting: list[Range] = []
            for each in ranges:
                reader = _opened(driver, topic, uuids.get(each.ledger), each)
                if reader is None:
                    waiting.append(each)
                    continue
                yield from _all(rest, connection, topic, waiting)
                waiting = []
                with closing(reader):
                    left = yield from _direct(reader, each, aborted)
                if left is not None:
                    yield from _all(rest, connection, topic, [left])
            yield from _all(rest, connection, topic, waiting)
    except OffloadError as error:
        raise SparkSourceError(f"{topic} cannot be read from tiered storage: {error}") from error


def _driver(connection: Connection) -> OffloadDriver:
    values = connection.options.offload
    try:
        return driver_for(values[DRIVER], values, PieceCache(_CACHE_BYTES))
    except OffloadMisconfigured as error:
        raise InvalidOption(f"the options 'offload.*' cannot be used: {error}") from error


def _opened(driver: OffloadDriver, topic: str, uuid: str | None, wanted: Range) -> OffloadedReader | None:
    """Returns a reader of a ledger; None: the storage does not contain the whole range."""
    if uuid is None:
        return None
    try:
        reader = driver.open(OffloadKey(TopicName.parse(topic).path, wanted.ledger, UUID(uuid)))
    except OffloadedLedgerMissing as error:
        log.warning("reading ledger %d of %s without tiered storage: %s", wanted.ledger, topic, error)
        return None
    if reader.first_entry_id <= wanted.first and wanted.first + wanted.entries - 1 <= reader.last_entry_id:
        return reader
    reader.close()
    return None


def _direct(
    reader: OffloadedReader, wanted: Range, aborted: set[tuple[int, int]]
) -> Generator[EntryPart, None, Range | None]:
    """Yields the entries of a range; if the ledger is deleted meanwhile, returns the part of the range that
    was not read.
    """
    at, end = wanted.first, wanted.first + wanted.entries
    while at < end:
        try:
            runs = reader.read(at, end - 1, _READ_BYTES)
        except OffloadedLedgerMissing as error:
            log.warning("reading the rest of ledger %d without tiered storage: %s", wanted.ledger, error)
            return wanted.from_entry(at)
        for run in runs:
            for index in range(run.count):
                entry = run.entry(index)
                if not is_aborted(entry, aborted):
                    yield part_of(wanted, at, entry)
                at += 1
    return None


def _all(
    rest: EntriesOf, connection: Connection, topic: str, ranges: Sequence[Range]
) -> Generator[EntryPart]:
    with closing(rest(connection, topic, ranges)) as entries:
        yield from entries
