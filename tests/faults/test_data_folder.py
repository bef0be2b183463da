"""Whatever happens to one file of the data folder: what was acknowledged is served, or refused by name.

Nothing is deleted: with the file put back everything is there.
"""

from __future__ import annotations

import os
from random import Random

import pytest
from data_folder import REFUSALS, History, Life, copy_of, damaged, files_of, history, read_file, write_file
from simulated_io import ProcessStopped, SimulatedDisk

from magnetar.managed_ledger.errors import ManagedLedgerNotFound
from magnetar.server.embedded_stores import METADATA_FILE, StoresDisagree

ENDS = ("stopped", "killed", "killed at once")


@pytest.fixture(scope="module", params=ENDS)
def before(request: pytest.FixtureRequest) -> History:
    return history(request.param)


def test_the_folder_itself_is_served(before: History) -> None:
    check_all_served(copy_of(before.disk), before)


def test_damage_to_any_file_loses_nothing_in_silence(before: History) -> None:
    cases = int(os.environ.get("MAGNETAR_SEEDS", "200"))
    first = int(os.environ.get("MAGNETAR_FIRST_SEED", "1"))
    refused = 0
    for seed in range(first, first + cases):
        disk = copy_of(before.disk)
        originals = files_of(disk)
        path, what = damaged(disk, Random(seed), before.earlier)
        case = f"seed {seed}: {path}: {what}"
        problem = outcome(disk, before, case)
        refused += problem is not None
        if problem is None or path not in originals:
            continue
        # What was refused is all still there.
        found = disk.killed()
        write_file(found, path, originals[path])
        try:
            check_all_served(found, before)
        except (AssertionError, *REFUSALS) as error:
            raise AssertionError(
                f"{case}: refused ({problem}), and with the file put back: {error}"
            ) from error
    assert refused > cases // 8, "hardly anything was refused: what was damaged?"


def outcome(disk: SimulatedDisk, before: History, case: str) -> str | None:
    """None: it started, and served what it has not refused. Else why the start was refused."""
    try:
        life = Life(disk)
    except REFUSALS as error:
        return str(error)
    except ProcessStopped as error:
        return str(error)
    for topic, entries in before.entries.items():
        try:
            found = life.entries(topic)
        except ManagedLedgerNotFound as error:
            raise AssertionError(f"{case}: {topic} is gone, in silence") from error
        except REFUSALS:
            continue
        except ProcessStopped as error:
            life.simulation.abandon()
            return str(error)
        if found != entries:
            lost = set(entries) - set(found)
            raise AssertionError(f"{case}: {topic} lacks {len(lost)} of {len(entries)} entries, in silence")
    life.killed()
    # A broker that started has moved on: the file that was there before does not fit any more.
    return None


def check_all_served(disk: SimulatedDisk, before: History) -> None:
    life = Life(disk)
    for topic, entries in before.entries.items():
        assert life.entries(topic) == entries, topic
    assert not life.orphans.known or all(orphan.entries == 0 for orphan in life.orphans.known)
    life.killed()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("which", [None, 0, 4])
def test_ledgers_that_are_missing_or_earlier_refuse_the_start(end: str, which: int | None) -> None:
    """All of the folder: else ids of ledgers that the metadata name would be given out again.

    :param which: of the earlier copies; None: the folder is empty
    """
    before = history(end)
    disk = copy_of(before.disk)
    originals = files_of(disk)
    old = {} if which is None else before.earlier[which]
    folder = "ledgers/"
    for path in originals:
        if path.startswith(folder):
            disk.unlink(path)
    for path, data in old.items():
        if path.startswith(folder):
            write_file(disk, path, data)
    disk.sync_directory("ledgers")
    with pytest.raises(StoresDisagree, match="Restore"):
        Life(disk)
    found = disk.killed()
    for path in files_of(found):
        if path.startswith(folder):
            found.unlink(path)
    for path, data in originals.items():
        write_file(found, path, data)
    check_all_served(found, before)


@pytest.mark.parametrize("what", ["remove", "empty", "earlier", "wal removed", "wal damaged"])
def test_lost_metadata_refuse_the_start(what: str) -> None:
    before = history("killed")
    disk = copy_of(before.disk)
    wal, originals = f"{METADATA_FILE}-wal", files_of(disk)
    if what == "remove":
        disk.unlink(METADATA_FILE)
    elif what == "empty":
        write_file(disk, METADATA_FILE, b"")
    elif what == "earlier":
        old = before.earlier[3]
        write_file(disk, METADATA_FILE, old[METADATA_FILE])
        write_file(disk, wal, old.get(wal, b""))
    elif what == "wal removed":
        disk.unlink(wal)
    else:
        data = bytearray(read_file(disk, wal))
        data[32:96] = bytes(64)
        write_file(disk, wal, bytes(data))
    with pytest.raises(StoresDisagree, match="magnetar recover-metadata"):
        Life(disk)
    found = disk.killed()
    for path in (METADATA_FILE, wal):
        write_file(found, path, originals[path])
    check_all_served(found, before)
