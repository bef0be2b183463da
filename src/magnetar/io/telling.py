"""Calling several listeners, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import Loop


def tell(loop: Loop, listener: Callable[..., object], *arguments: Any) -> None:
    """Calls a listener. Its errors are reported to the loop, and do not keep other listeners from being
    called."""
    try:
        listener(*arguments)
    except Exception as error:  # noqa: BLE001 - reported
        report(loop, listener, error)


def report(loop: Loop, listener: Callable[..., object], error: Exception) -> None:
    """Reports an error of a listener to the loop's operators; a simulation ends with it."""
    loop.call_exception_handler({"message": f"{listener!r} failed", "exception": error})
