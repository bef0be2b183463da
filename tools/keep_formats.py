"""Keeps a data directory, and a folder with a backup of it, in the formats that the source writes now.

    python tools/keep_formats.py

Writes ``tests/integration/data_formats/NAME.tar.gz``, whose name has the numbers of the formats. Run it in a
commit that changes a format. An archive is never written again: what it has comes from its own time.
"""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "harness"))

import kept_data  # noqa: E402
from server import Server  # noqa: E402

from magnetar.ledger.embedded.segment_header import FORMAT_VERSION as LEDGERS  # noqa: E402
from magnetar.metadata.sqlite_nodes import FORMAT_VERSION as METADATA  # noqa: E402
from magnetar.server.backup_folder import FORMAT as BACKUPS  # noqa: E402

FOLDER = ROOT / "tests" / "integration" / "data_formats"
NAME = f"ledgers-{LEDGERS}-metadata-{METADATA}-backups-{BACKUPS}.tar.gz"


def main() -> int:
    target = FOLDER / NAME
    if target.exists():
        print(f"{target.relative_to(ROOT)} is there already")
        return 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = Server(folder, kept_data.SETTINGS)
        server.start()
        client = kept_data.connected(server)
        kept_data.write(server, client)
        command = [sys.executable, "-m", "magnetar", "backup", str(folder / "backups"), "--quiet"]
        subprocess.run([*command, "--admin-url", server.http_url], check=True)
        # Killed, not stopped, so that the tail of the log must be replayed.
        server.kill()
        client.shutdown()
        FOLDER.mkdir(exist_ok=True)
        with tarfile.open(target, "w:gz") as archive:
            for part in ("data", "backups"):
                archive.add(folder / part, part)
    print(target.relative_to(ROOT), target.stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main())
