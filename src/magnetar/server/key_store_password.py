"""Passwords of key stores, each in a file of its own."""

from __future__ import annotations

from pathlib import Path

from magnetar.config.settings import SettingsContradict


def key_store_password(path: str) -> str:
    """Without the blanks and line breaks around it; empty: there is no such file to read.

    :raises SettingsContradict: it cannot be read
    """
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsContradict(f"{path} with the password of a key store: {error}") from error
