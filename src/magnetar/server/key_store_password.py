"""Passwords of key stores, which are read from files."""

from __future__ import annotations

from pathlib import Path

from magnetar.config.settings import SettingsContradict


def key_store_password(path: str) -> str:
    """Returns the password without surrounding white space; empty if ``path`` is empty.

    :raises SettingsContradict: the file cannot be read
    """
    if not path:
        return ""
    try:
        return Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsContradict(f"{path} with the password of a key store: {error}") from error
