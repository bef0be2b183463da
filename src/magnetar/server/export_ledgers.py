"""Exports topics between the data of a standalone broker and a cluster, in a separate process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from magnetar.config.settings import Loaded
from magnetar.exporting.errors import NotExported
from magnetar.exporting.export import Export, ExportPlan, Selection
from magnetar.exporting.mapping import HEADER, line_of
from magnetar.exporting.namespaces import WhichPolicies
from magnetar.exporting.side import OpenStores
from magnetar.exporting.topic_export import MappedLedger
from magnetar.lazy_dataclass import dataclass
from magnetar.server.export_sides import cluster_side, standalone_side

Say = Callable[[str], None]


@dataclass(frozen=True)
class ExportPlace:
    """Source or target of an export."""

    loaded: Loaded
    data_dir: Path | None
    """None: a cluster."""

    def open(
        self, loop: asyncio.AbstractEventLoop, *, make: bool, check: bool
    ) -> AbstractAsyncContextManager[OpenStores]:
        if self.data_dir is not None:
            return standalone_side(loop, self.data_dir, self.loaded.settings, make=make, check=check)
        assert self.loaded.cluster is not None
        return cluster_side(loop, self.loaded.settings, self.loaded.cluster, check=check)


@dataclass(frozen=True)
class ExportRequest:
    """The options of the command line."""

    source: ExportPlace
    target: ExportPlace
    selection: Selection
    policies: WhichPolicies
    mapping: Path | None
    """None: message ids are not kept outside."""
    check: bool
    give_up: bool = False
    """Undo an interrupted export, except for topics that have left the source already."""


class MappingFile:
    """The file of the mapping. Appended lines are durable before the export relies on them."""

    def __init__(self, path: Path) -> None:
        """:raises NotExported: the file is not a mapping file

        :raises OSError: it cannot be written
        """
        self._file = path.open("a+", encoding="utf-8")
        self._file.seek(0)
        if self._file.readline().rstrip("\n") not in ("", HEADER):
            self._file.close()
            raise NotExported(f"{path} exists and is not a mapping file")
        # A full disk or a crash may have left half a line at the end: ignore it.
        whole = path.read_bytes().rfind(b"\n") + 1
        self._file.truncate(whole)
        if not whole:
            self._file.write(HEADER + "\n")

    def keep(self, lines: Sequence[MappedLedger]) -> None:
        self._file.writelines(map(line_of, lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()


def export_ledgers(wanted: ExportRequest, say: Say) -> bool:
    """Exports, or only checks. Returns whether all topics were or can be exported; reasons go to ``say``.

    :raises NotExported: a side cannot be opened, or another process interfered
    :raises LedgerError: entries cannot be read or written
    :raises ManagedLedgerError: a record cannot be read or written
    :raises MetadataError: a store does not answer
    :raises BrokerError: policies of topics cannot be set
    :raises OSError: the mapping cannot be written
    """
    loop = asyncio.new_event_loop()
    try:
        work = loop.create_task(_export(loop, wanted, say))
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, work.cancel)
        return loop.run_until_complete(work)
    except asyncio.CancelledError as error:
        raise NotExported("interrupted; run the same command again to resume") from error
    finally:
        loop.close()


async def _export(loop: asyncio.AbstractEventLoop, wanted: ExportRequest, say: Say) -> bool:
    check = wanted.check
    async with (
        wanted.source.open(loop, make=False, check=check) as source,
        wanted.target.open(loop, make=True, check=check) as target,
    ):
        export = Export(source, target, wanted.policies)
        if wanted.give_up:
            left = await export.give_up(wanted.selection, lambda unit: say(f"not exported: {unit.name}"))
            for sentence in left:
                say(f"refused: {sentence}")
            return not left
        plan = await export.plan(wanted.selection)
        for sentence in plan.left_out:
            say(f"not exported: {sentence}")
        if plan.refusals:
            for sentence in plan.refusals:
                say(f"refused: {sentence}")
            return False
        if check:
            for unit in plan.units:
                say(f"exportable: {unit.name}")
            say(f"{len(plan.units)} topics can be exported from {source.name} to {target.name}")
            return True
        await _run(export, plan, wanted.mapping, say)
        say(f"{len(plan.units)} topics were exported from {source.name} to {target.name}")
        return True


async def _run(export: Export, plan: ExportPlan, mapping: Path | None, say: Say) -> None:
    file = None if mapping is None else MappingFile(mapping)

    def keep(lines: Sequence[MappedLedger]) -> None:
        if file is not None:
            file.keep(lines)

    try:
        await export.run(plan, keep, lambda unit: say(f"exported: {unit.name}"))
    finally:
        if file is not None:
            file.close()
