"""What SQLite makes of a device that refuses writes, with the C library in between: a quota, or a failure."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from simulated_io import SimulatedDisk
from simulated_io.sqlite import SimulatedSqlite

from magnetar.io.interfaces import SqlConnection
from magnetar.io.real.sqlite import SqliteConnection

_LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static int refused(int file) {
    const char *path = getenv("FAIL_WRITES_IF"), *number = getenv("FAIL_WRITES_WITH");
    if (file < 3 || path == NULL || number == NULL || access(path, F_OK) != 0)
        return 0;
    errno = atoi(number);
    return 1;
}

ssize_t write(int file, const void *data, size_t size) {
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return refused(file) ? -1 : real(file, data, size);
}

ssize_t pwrite(int file, const void *data, size_t size, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite");
    return refused(file) ? -1 : real(file, data, size, offset);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t offset) {
    ssize_t (*real)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    return refused(file) ? -1 : real(file, data, size, offset);
}
"""
"""Refuses every write with the error number in FAIL_WRITES_WITH while the file FAIL_WRITES_IF exists, as a
file system does whose quota is used up; setting a quota takes rights that a test does not have."""

_PROGRAM = """
import sys
from pathlib import Path
from magnetar.io.interfaces import SqlError, SqlFull
from magnetar.io.real.sqlite import SqliteConnection

directory, trigger = map(Path, sys.argv[1:])
connection = SqliteConnection(str(directory / "metadata.sqlite"))
connection.start()
connection.execute("CREATE TABLE nodes (value BLOB)")
trigger.touch()
try:
    connection.execute("INSERT INTO nodes VALUES (zeroblob(100000))")
except SqlFull:
    print("full")
except SqlError:
    print("failed")
if connection.in_transaction:
    connection.execute("ROLLBACK")
trigger.unlink()
connection.execute("INSERT INTO nodes VALUES (x'00')")
print(connection.execute("SELECT count(*) FROM nodes"))
connection.close()
print(sorted(path.name for path in directory.iterdir()))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("library") / "over_quota.so"
    command = ["cc", "-shared", "-fPIC", "-o", str(path), "-x", "c", "-", "-ldl"]
    subprocess.run(command, input=_LIBRARY, text=True, check=True)
    return path


@pytest.mark.parametrize(
    ("code", "told"), [(errno.EDQUOT, "full"), (errno.ENOSPC, "full"), (errno.EIO, "failed")]
)
def test_a_quota_is_no_failing_device(tmp_path: Path, library: Path, code: int, told: str) -> None:
    directory, trigger = tmp_path / "metadata", tmp_path / "trigger"
    directory.mkdir()
    found = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(directory), str(trigger)],
        env={
            **os.environ,
            "LD_PRELOAD": str(library),
            "FAIL_WRITES_IF": str(trigger),
            "FAIL_WRITES_WITH": str(code),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines() == [told, "[(1,)]", "['metadata.sqlite']"]


def spill(connection: SqlConnection) -> None:
    """A large change in a savepoint, and a sort that does not fit into the cache."""
    connection.start()
    connection.execute("CREATE TABLE nodes (id INTEGER PRIMARY KEY, value BLOB)")
    rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)"
    connection.execute(f"INSERT INTO nodes {rows} SELECT i, randomblob(3000) FROM n")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("SAVEPOINT operation")
    connection.execute("UPDATE nodes SET value = randomblob(3000)")
    connection.execute("ROLLBACK TO operation")
    connection.execute("COMMIT")
    connection.execute("SELECT count(*) FROM (SELECT value FROM nodes ORDER BY value LIMIT -1 OFFSET 1)")


def test_nothing_goes_to_temporary_files() -> None:
    """Else a full /tmp would end the process."""
    disk = SimulatedDisk(1)
    disk.fail("create", "sqlite-temporary", code=errno.ENOSPC)
    spill(SimulatedSqlite(disk, "metadata/metadata.sqlite"))


def test_the_real_connection_keeps_them_in_memory(tmp_path: Path) -> None:
    connection = SqliteConnection(str(tmp_path / "metadata.sqlite"))
    spill(connection)
    assert connection.execute("PRAGMA temp_store") == [(2,)]
    connection.close()
