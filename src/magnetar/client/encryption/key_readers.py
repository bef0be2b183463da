"""Where keys of messages come from."""

from __future__ import annotations

from typing import Protocol

from magnetar.client.exceptions import CryptoError
from magnetar.security.key_material import UnusableKey, key_source


class KeyReader(Protocol):
    """Finds keys by their names; asked in the client's loop, so it has to answer at once.

    What it raises is a :class:`CryptoError`.
    """

    def public_key(self, name: str) -> bytes:
        """In PEM, for those who encrypt."""
        ...

    def private_key(self, name: str) -> bytes:
        """In PEM, for those who decrypt."""
        ...


class CryptoKeyReader:
    """One pair of keys for all names, as of the official clients.

    A key is a path, a ``file:`` URL or a ``data:`` URL of what is in PEM; it is read when it is needed.
    """

    def __init__(self, public_key_path: str = "", private_key_path: str = "") -> None:
        """:param public_key_path: empty where nothing is encrypted

        :param private_key_path: empty where nothing is decrypted
        """
        self._public = public_key_path
        self._private = private_key_path

    def public_key(self, name: str) -> bytes:
        """:raises CryptoError: there is none, or it cannot be read"""
        return _read(self._public, "public", name)

    def private_key(self, name: str) -> bytes:
        """:raises CryptoError: there is none, or it cannot be read"""
        return _read(self._private, "private", name)


def _read(text: str, what: str, name: str) -> bytes:
    if not text:
        raise CryptoError(f"no {what} key was given for {name!r}")
    try:
        return key_source(text).read()
    except UnusableKey as error:
        raise CryptoError(f"the {what} key for {name!r}: {error}") from error
