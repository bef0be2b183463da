"""Large bodies are parsed beside the loop, and so that the loop goes on meanwhile."""

from __future__ import annotations

import json
import json.scanner
from typing import Any

from magnetar.http.engine.written_number import WrittenNumber

LARGE_BYTES = 64 * 1024
"""Bodies beyond this are parsed here; up to this the loop takes less than a millisecond for most."""


class _Interruptible(json.JSONDecoder):
    """The decoder in C holds Python's lock from the first byte to the last, whatever thread it runs on.

    This one, in Python, gives it up now and then.
    """

    def __init__(self) -> None:
        super().__init__(parse_float=WrittenNumber)
        self.scan_once = getattr(json.scanner, "py_make_scanner")(self)  # noqa: B009 - typeshed hides it


def parse_large(body: bytes | bytearray) -> Any:
    """For a worker.

    :raises ValueError: it is not JSON
    :raises RecursionError: it is nested too deeply
    """
    return _Interruptible().decode(body.decode(json.detect_encoding(body), "surrogatepass"))
