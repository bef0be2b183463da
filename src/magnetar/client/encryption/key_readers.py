"""Sources of the keys that encrypt messages."""

from __future__ import annotations

from typing import Protocol

from magnetar.client.exceptions import CryptoError
from magnetar.security.key_material import UnusableKey, key_source


class KeyReader(Protocol):
    """Finds keys by name. Called in the client's event loop, so it must not block.

    Its errors must be :class:`CryptoError`.
    """

    def public_key(self, name: str) -> bytes:
        """Returns a key for encryption, in PEM.

        :param name: the ``encryption_key`` of a producer
        :raises CryptoError: no key has the name
        """
        ...

    def private_key(self, name: str) -> bytes:
        """Returns a key for decryption, in PEM.

        :param name: the name of the key, from the message
        :raises CryptoError: no key has the name
        """
        ...


class CryptoKeyReader:
    """One pair of keys for all names, as in the official clients.

    A key is a path, a ``file:`` URL or a ``data:`` URL of a PEM file; it is read when it is needed.
    """

    def __init__(self, public_key_path: str = "", private_key_path: str = "") -> None:
        """:param public_key_path: the key for encryption; empty without encryption

        :param private_key_path: the key for decryption; empty without decryption
        """
        self._public = public_key_path
        self._private = private_key_path

    def public_key(self, name: str) -> bytes:
        """Returns the public key, in PEM.

        :param name: for errors; the key is the same for all names
        :raises CryptoError: the key is not set, or cannot be read
        """
        return _read(self._public, "public", name)

    def private_key(self, name: str) -> bytes:
        """Returns the private key, in PEM.

        :param name: for errors; the key is the same for all names
        :raises CryptoError: the key is not set, or cannot be read
        """
        return _read(self._private, "private", name)


def _read(text: str, what: str, name: str) -> bytes:
    if not text:
        raise CryptoError(f"no {what} key was given for {name!r}")
    try:
        return key_source(text).read()
    except UnusableKey as error:
        raise CryptoError(f"the {what} key for {name!r}: {error}") from error
