"""Keys and password files in settings (a file, a ``data:`` URL, or base64), and watched files.

The forms are those of Pulsar's ``AuthTokenUtils`` and of its token documentation.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from urllib.parse import unquote_to_bytes, urlsplit

from magnetar.io.interfaces import Cancellable, Io, Worker
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import run_job
from magnetar.lazy_dataclass import dataclass

MAX_BYTES = 4 << 20
_Seen = tuple[tuple[int, int, int] | None, ...]


class UnusableKey(ValueError):
    """The source of a key or file in a setting cannot be used; the message gives the reason, without
    secrets."""


@dataclass(frozen=True, slots=True)
class KeySource:
    """The source of the bytes of a setting: a path, or the bytes themselves."""

    path: Path | None
    inline: bytes = field(default=b"", repr=False)

    def read(self) -> bytes:
        """Returns the current bytes; blocks.

        :raises UnusableKey: the file cannot be read, is empty or larger than 4 MiB
        """
        if self.path is None:
            return self.inline
        try:
            with self.path.open("rb") as file:
                found = file.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            raise UnusableKey(f"{self.path} cannot be read: {_why(error)}") from error
        if not found:
            raise UnusableKey(f"{self.path} is empty")
        if len(found) > MAX_BYTES:
            raise UnusableKey(f"{self.path} has more than {MAX_BYTES} bytes")
        return found


def key_source(text: str) -> KeySource:
    """Returns the source that the value of a setting describes: ``file:…``, ``data:…``, the path of
    an existing file, or base64.

    :raises UnusableKey: the value has another form
    """
    text = text.strip()
    if text.startswith("file:"):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise UnusableKey(f"{text} is a file on another host: use file:///PATH")
        return KeySource(Path(unquote_to_bytes(parts.path).decode("utf-8", "surrogateescape")))
    if text.startswith("data:"):
        return KeySource(None, _data_url(text))
    if _is_file(text):
        return KeySource(Path(text))
    if not text:
        raise UnusableKey("the value is empty")
    if _looks_like_path(text):
        raise UnusableKey(f"there is no file {text}")
    try:
        return KeySource(None, base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise UnusableKey("the value is not an existing file, a file: or data: URL, or base64") from error


def _data_url(text: str) -> bytes:
    head, comma, body = text.removeprefix("data:").partition(",")
    if not comma:
        raise UnusableKey("the data: URL has no comma before its content")
    if not head.endswith(";base64"):
        return unquote_to_bytes(body)
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError) as error:
        raise UnusableKey("the data: URL has invalid base64") from error


def _is_file(text: str) -> bool:
    try:
        return bool(text) and Path(text).is_file()
    except (OSError, ValueError):
        # A key may be longer than a path can be.
        return False


def _looks_like_path(text: str) -> bool:
    """Whether a value is probably the path of a missing file.

    Such a path may also be valid base64, but a path must not become a key, because others could guess it. A
    base64 key that begins with a slash almost certainly has capital letters and digits, and its part before
    the next slash is not an existing folder.
    """
    if not text.startswith("/"):
        return False
    random = any(map(str.isupper, text)) and any(map(str.isdigit, text))
    first, slash, _ = text[1:].partition("/")
    return not random or bool(slash and first and Path("/", first).is_dir())


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)


class WatchedFiles:
    """Watches files, and reports when one was changed or replaced."""

    def __init__(
        self, io: Io, worker: Worker, files: Sequence[Path], seconds: float, changed: Callable[[], None]
    ) -> None:
        """:param worker: runs the checks
        :param seconds: the time between two checks in seconds; 0: no checks
        :param changed: called on the loop after a file was changed or replaced
        """
        self._io = io
        self._tasks = TaskScope(io.loop, "files that are watched", owner_goes_on)
        self._worker = worker
        self._files = tuple(files)
        self._seconds = seconds
        self._changed = changed
        self._seen = self._look()
        self._timer: Cancellable | None = None
        self._closed = False
        if self._files and seconds > 0:
            self._wait()

    def _wait(self) -> None:
        if not self._closed:
            self._timer = self._io.loop.call_later(self._seconds, self._begin)

    def _begin(self) -> None:
        self._tasks.start(self._compare(), "looking for changes")

    async def _compare(self) -> None:
        try:
            seen = await run_job(self._io.loop, self._worker, self._look)
            if seen != self._seen and not self._closed:
                self._seen = seen
                self._changed()
        finally:
            # Also after an error: a later change, for example of a revoked key, must be noticed.
            self._wait()

    def _look(self) -> _Seen:
        return tuple(_identity(path) for path in self._files)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Returns values that differ between a file and its replacement; None if the file is not accessible."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
