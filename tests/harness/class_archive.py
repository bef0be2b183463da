"""An archive of the classes that Apache's servers load: with it, a JVM starts with two thirds of the work."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apache_standalone import ApacheStandalone
from java_servers import ARCHIVE, class_path

_END_SECONDS = 300.0


class _Archiving(ApacheStandalone):
    """Loads what a broker, a bookie and ZooKeeper load, and writes the archive when it ends."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            folder, 0, advertisedAddress="127.0.0.1", advertisedListeners="", internalListenerName=""
        )

    @property
    def archive(self) -> Path:
        return self.folder / "classes.jsa"

    def command(self) -> Sequence[str]:
        command = list(super().command())
        command.insert(command.index("java") + 1, f"-XX:ArchiveClassesAtExit={self.archive}")
        return command


def archive_classes(folder: Path) -> None:
    """Writes the archive, unless there is one.

    :param folder: for the files of a server
    """
    class_path()
    if ARCHIVE.exists():
        return
    server = _Archiving(folder)
    try:
        server.start()
        # A message is written and read.
        assert server.ask("GET", "/admin/v2/brokers/health") == (200, b"ok"), server.said()
        server.stop(_END_SECONDS)
    finally:
        server.close()
    server.archive.rename(ARCHIVE)
