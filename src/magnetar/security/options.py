"""Security settings for providers, with Pulsar's names; their values include secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn


class ProviderRefused(ValueError):
    """A provider cannot work with the settings; the message names the settings."""


class SecurityOptions:
    """The settings in the broker's file by name, including settings that Magnetar itself does not know."""

    def __init__(self, given: Mapping[str, str], prefix: str = "") -> None:
        """:param prefix: prefix of the names in the file (``tokenSettingPrefix``)"""
        self._given = given
        self._prefix = prefix

    def prefixed(self, prefix: str) -> SecurityOptions:
        """Returns an object for the same settings that puts ``prefix`` in front of the names that it looks
        up.
        """
        return SecurityOptions(self._given, prefix)

    def text(self, name: str, default: str = "") -> str:
        """Returns a setting; ``default`` if it is missing or empty."""
        return self._given.get(self._prefix + name, "").strip() or default

    def names(self, name: str) -> tuple[str, ...]:
        """Returns the parts of a setting that is a list separated by commas."""
        return tuple(part.strip() for part in self.text(name).split(",") if part.strip())

    def whole(self, name: str, default: int, low: int = 0, high: int = 1 << 31) -> int:
        """Returns the value of a setting that is a whole number.

        :raises ProviderRefused: the setting is not a number between ``low`` and ``high``
        """
        text = self.text(name)
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            self.refuse(name, f"must be a whole number, not {text!r}")
        if not low <= number <= high:
            self.refuse(name, f"must be a number from {low} to {high}, not {number}")
        return number

    def truth(self, name: str, default: bool) -> bool:
        """Returns the value of a setting that is true or false.

        :raises ProviderRefused: the setting is neither ``true`` nor ``false``
        """
        text = self.text(name).lower()
        if text not in ("", "true", "false"):
            self.refuse(name, f"must be true or false, not {text!r}")
        return text == "true" if text else default

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raises the error for a setting with an invalid value.

        :raises ProviderRefused: always
        """
        raise ProviderRefused(f"{self._prefix}{name} {why}")
