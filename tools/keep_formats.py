"""Keeps a data directory with a backup of it, and a checkpoint of Spark, in the present formats.

    python tools/keep_formats.py

Writes ``tests/integration/data_formats/NAME.tar.gz``, whose name has the numbers of the formats. Run it in a
commit that changes a format. An archive is never written again: its contents come from its own time.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "harness"))

import kept_checkpoint  # noqa: E402
import kept_data  # noqa: E402
from server import Server  # noqa: E402

from magnetar.ledger.embedded.segment_header import FORMAT_VERSION as LEDGERS  # noqa: E402
from magnetar.metadata.sqlite_nodes import FORMAT_VERSION as METADATA  # noqa: E402
from magnetar.metadata.sqlite_nodes import OFFLOADING_FORMAT as OFFLOADING  # noqa: E402
from magnetar.server.backup_folder import FORMAT as BACKUPS  # noqa: E402

FOLDER = ROOT / "tests" / "integration" / "data_formats"
NAME = f"ledgers-{LEDGERS}-metadata-{METADATA}-backups-{BACKUPS}.tar.gz"
OFFLOADED = f"ledgers-{LEDGERS}-metadata-{OFFLOADING}-backups-{BACKUPS}.tar.gz"


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    kept = [
        _keep(NAME, _data_directory, ("data", "backups")),
        _keep(OFFLOADED, _offloaded_directory, ("data", "backups", kept_data.TIERED), kept_data.OFFLOADING),
        _keep(kept_checkpoint.NAME, kept_checkpoint.write, ("data", "archive")),
    ]
    return 0 if any(kept) else 1


def _keep(
    name: str,
    write: Callable[[Server], None],
    parts: tuple[str, ...],
    settings: Mapping[str, int | str] = MappingProxyType({}),
) -> bool:
    target = FOLDER / name
    if target.exists():
        print(f"{target.relative_to(ROOT)} exists already; archives are never replaced")
        return False
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), {**kept_data.SETTINGS, **settings})
        server.working_folder = Path(folder)
        server.start()
        write(server)
        # Killed, not stopped, so that the tail of the log must be replayed.
        server.kill()
        with tarfile.open(target, "w:gz") as archive:
            for part in parts:
                archive.add(Path(folder) / part, part)
    print(target.relative_to(ROOT), target.stat().st_size)
    return True


def _offloaded_directory(server: Server) -> None:
    _data_directory(server, kept_data.write_offloaded)


def _data_directory(server: Server, write_more: Callable[[Server], None] | None = None) -> None:
    client = kept_data.connected(server)
    kept_data.write(server, client)
    if write_more is not None:
        write_more(server)
    command = [sys.executable, "-m", "magnetar", "backup", str(server.folder / "backups"), "--quiet"]
    subprocess.run([*command, "--admin-url", server.http_url], check=True)
    client.shutdown()


if __name__ == "__main__":
    sys.exit(main())
