"""What the benchmark of many ledgers opens is a data directory of the store's own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))

from bench.ledger_fixture import ENTRY_BYTES, SUBSCRIPTION, LedgerFixture, Shape, topic

from magnetar.io.real import real_io
from magnetar.ledger.embedded.settings import EmbeddedSettings
from magnetar.ledger.embedded.store import EmbeddedLedgerStore
from magnetar.managed_ledger.records import ROOT, decode_cursor, decode_managed_ledger
from magnetar.metadata.embedded import EmbeddedMetadataStore
from magnetar.naming.topic_name import TopicName

SHAPE = Shape(topics=5, ledgers=100, bytes=300_000_000, real=3)


def test_a_store_opens_it_and_reads_what_is_there(tmp_path: Path) -> None:
    async def scenario() -> None:
        io = real_io(asyncio.get_running_loop(), tmp_path)
        io.disk.make_directory("metadata")
        for number in range(2):
            store = await EmbeddedLedgerStore.open_store(io, "ledgers", EmbeddedSettings())
            metadata = await EmbeddedMetadataStore.open_store(io, "metadata/metadata.sqlite")
            if number:
                await look(store, metadata)
            await store.close()
            await metadata.close()
            if not number:
                assert LedgerFixture(tmp_path, SHAPE).make() == 5

    asyncio.run(scenario())


async def look(store: EmbeddedLedgerStore, metadata: EmbeddedMetadataStore) -> None:
    space = store.space()
    assert (space.ledgers, space.segments) == (100, 5)
    assert abs(space.wanted_bytes - 97 * 3_000_000) < 1_000_000
    named: list[int] = []
    for number in range(SHAPE.topics):
        path = f"{ROOT}/{TopicName.parse(topic(number)).path}"
        node = await metadata.get(path)
        assert node is not None
        record = decode_managed_ledger(node.value, path)
        assert len(record.ledgers) == 20
        for summary in record.ledgers:
            reader = await store.open(summary.ledger_id, recover=False)
            assert (await reader.last_add_confirmed()) + 1 == summary.entries
            assert reader.metadata.length == summary.size
            named.append(summary.ledger_id)
        cursor = await metadata.get(f"{path}/{SUBSCRIPTION}")
        assert cursor is not None
        assert decode_cursor(cursor.value, path).state.mark_delete == (record.ledgers[0].ledger_id, -1)
        if number < SHAPE.real:
            reader = await store.open(record.ledgers[0].ledger_id, recover=False)
            (run,) = await reader.read(0, 0, 1 << 20)
            assert run.entry(0).endswith(b"x" * ENTRY_BYTES)
    assert named == list(await store.ledger_ids())
