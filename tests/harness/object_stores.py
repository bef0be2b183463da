"""An object store with the interface of S3, in a process of its own."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ports import free_port
from pyarrow import fs

from magnetar.spark.pipelines.table_files import ACCESS_OPTIONS, TableFolder

_START_SECONDS = 60.0


@contextmanager
def object_store() -> Iterator[TableFolder]:
    """Yields a bucket.

    The store must not run in this process: libraries hold the interpreter while they wait for its answers.
    """
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _await(port, process)
        access = {
            "endpoint": f"http://127.0.0.1:{port}",
            "region": "us-east-1",
            "access_key_id": "key",
            "secret_access_key": "hidden",
        }
        given = {ACCESS_OPTIONS[name].arrow: value for name, value in access.items()}
        fs.S3FileSystem(**given, allow_bucket_creation=True).create_dir("lake")
        yield TableFolder("s3://lake", access)
    finally:
        process.kill()
        process.wait()


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"the object store does not listen on port {port}")
