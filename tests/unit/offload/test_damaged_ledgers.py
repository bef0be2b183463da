"""Whatever is damaged: the entries come back as they were, or an error names the object and the position."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from offloaded import VECTORS, cache, objects, read_all, recorded
from test_object_formats import entries_of

from magnetar.offload import driver_for
from magnetar.offload import index as index_format
from magnetar.offload.interface import OffloadedLedgerDamaged, OffloadKey, OffloadMisconfigured

NAME = next(name for name in objects() if name.endswith("-6"))
CHANGES = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=9), st.integers(0, 9)), max_size=3
)


def changed(data: bytes, changes: list[tuple[float, bytes, int]]) -> bytes:
    """Replaces some bytes, at places from 0 to 1, by others, or cuts them out."""
    for place, replacement, removed in changes:
        start = int(place * len(data))
        data = data[:start] + replacement + data[start + removed :]
    return data


@given(of_data=CHANGES, of_index=CHANGES)
@settings(max_examples=300)
def test_objects(of_data: list[tuple[float, bytes, int]], of_index: list[tuple[float, bytes, int]]) -> None:
    data, index = recorded(NAME)
    sound = entries_of(data, index_format.decoded(NAME, index))
    try:
        found = index_format.decoded(NAME, changed(index, of_index))
        entries = entries_of(changed(data, of_data), found)
    except OffloadedLedgerDamaged:
        return
    # An entry that has lost the sign of its checksum is one without.
    assert all(
        entry == before or not entry.startswith(b"\x0e\x01")
        for entry, before in zip(entries, sound, strict=False)
    )
    assert len(entries) <= len(sound)


@given(
    number=st.integers(1, 3),
    of_data=CHANGES,
    of_index=CHANGES,
)
@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files(
    tmp_path: Path,
    number: int,
    of_data: list[tuple[float, bytes, int]],
    of_index: list[tuple[float, bytes, int]],
) -> None:
    key = OffloadKey("hadoop", 21, UUID(int=number))
    source = VECTORS / "files" / "hadoop" / f"21-{key.uuid}"
    target = tmp_path / "hadoop" / source.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name, changes in (("data", of_data), ("index", of_index)):
        (target / name).write_bytes(changed((source / name).read_bytes(), changes))
    try:
        reader = driver_for("filesystem", {"fileSystemURI": str(tmp_path)}, cache()).open(key)
        try:
            entries = read_all(reader)
        finally:
            reader.close()
    except (OffloadedLedgerDamaged, OffloadMisconfigured):
        return
    # Entries of other systems have no checksum; a file without compression shows changes within them.
    assert number == 1 or [len(entry) for entry in entries] == [
        len(b"entry %d " % each) + each % 37 for each in range(len(entries))
    ]
