"""Telling several listeners, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from magnetar.io.interfaces import Loop


def tell(loop: Loop, listener: Callable[..., object], *arguments: Any) -> None:
    """Calls a listener. What it raises is the loop's to report, and keeps nobody else from being told."""
    try:
        listener(*arguments)
    except Exception as error:  # noqa: BLE001 - handed on
        report(loop, listener, error)


def report(loop: Loop, listener: Callable[..., object], error: Exception) -> None:
    """What a listener raised, to those who look after the loop; the simulation ends with it."""
    loop.call_exception_handler({"message": f"{listener!r} failed", "exception": error})
