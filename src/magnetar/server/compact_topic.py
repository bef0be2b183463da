"""Compacts a topic of a stopped standalone broker: opens the broker's stores without serving clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

from magnetar.broker.compaction.topic_compaction import CompactionStatus
from magnetar.broker.ownership.contract import Addresses
from magnetar.broker.service import BrokerService
from magnetar.config.settings import Settings
from magnetar.errors import BrokerError
from magnetar.io.real import real_io
from magnetar.io.waiting import sleep
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.factory import ManagedLedgerFactory
from magnetar.metadata.passing_on import ResolvingStore
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.server.addresses import Advertised
from magnetar.server.embedded_stores import LEDGERS, EmbeddedStores
from magnetar.server.settings import (
    broker_settings,
    embedded_settings,
    entry_cache_settings,
    managed_ledger_settings,
    offload_driver,
)

_LOOK_SECONDS = 0.05


class NotCompacted(Exception):
    """The topic could not be compacted; the message says why."""


def compact_stored(settings: Settings, data_dir: Path, topic: str) -> None:
    """Compacts a topic, or all partitions of a partitioned topic, in the data directory of a stopped broker.

    :raises StoreLocked: a broker uses the data directory
    :raises NotCompacted: the topic does not exist, or cannot be compacted
    :raises LedgerError: the ledger store cannot be opened
    :raises MetadataError: the metadata cannot be read
    :raises OSError: the data directory cannot be used
    """
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(_compact(loop, settings, data_dir, topic))
    finally:
        loop.close()


async def _compact(loop: asyncio.AbstractEventLoop, settings: Settings, data_dir: Path, topic: str) -> None:
    try:
        name = TopicName.parse(topic)
    except InvalidName as error:
        raise NotCompacted(str(error)) from error
    io = real_io(loop, data_dir)
    if not io.disk.exists(LEDGERS):
        raise NotCompacted(f"{data_dir} contains no data of a broker; give the broker's data directory")
    stores = EmbeddedStores(io, embedded_settings(settings))
    try:
        await stores.open()
        metadata = ResolvingStore(stores.metadata, io.loop)
        wheel = TimerWheel(io.loop)
        kept, cached = managed_ledger_settings(settings), entry_cache_settings(settings)
        ledgers = ManagedLedgerFactory(
            io, wheel, stores.ledgers, metadata, kept, cached, offload_driver(settings)
        )
        nobody = Advertised(Addresses(None), {})
        broker = BrokerService(io, wheel, metadata, ledgers, broker_settings(settings, nobody, "", {}))
        try:
            await _compact_in(broker, name)
        except BrokerError as error:
            raise NotCompacted(str(error)) from error
        finally:
            await broker.stop()
            ledgers.stop_deletions()
            await ledgers.release()
    finally:
        await stores.close()


async def _compact_in(broker: BrokerService, name: TopicName) -> None:
    count = await broker.namespaces.partitions(name)
    for part in [name.partition(index) for index in range(count)] if count else [name]:
        compaction = (await broker.topics.persistent_topic(part)).compaction
        compaction.start()
        while compaction.running:
            await sleep(broker.io.loop, _LOOK_SECONDS)
        if compaction.status is not CompactionStatus.SUCCESS:
            raise NotCompacted(f"{part}: {compaction.last_error}")
