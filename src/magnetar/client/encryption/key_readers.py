"""Key readers, which provide the keys for encrypting and decrypting messages."""

from __future__ import annotations

from typing import Protocol

from magnetar.client.exceptions import CryptoError
from magnetar.security.key_material import UnusableKey, key_source


class KeyReader(Protocol):
    """Returns keys by name. The client calls the methods in its event loop, so they must not block; the only
    exception that they may raise is :class:`CryptoError`.
    """

    def public_key(self, name: str) -> bytes:
        """Returns a key for encryption, in PEM.

        :param name: the ``encryption_key`` of a producer
        :raises CryptoError: no key has the name
        """
        ...

    def private_key(self, name: str) -> bytes:
        """Returns a key for decryption, in PEM.

        :param name: the name of the key in the metadata of the message
        :raises CryptoError: no key has the name
        """
        ...


class CryptoKeyReader:
    """Returns the same pair of keys for all names, as in the official clients.

    Each key is given as the path, the ``file:`` URL or the ``data:`` URL of a PEM file, which is read at each
    use.
    """

    def __init__(self, public_key_path: str = "", private_key_path: str = "") -> None:
        """:param public_key_path: the key for encryption; empty: no encryption

        :param private_key_path: the key for decryption; empty: no decryption
        """
        self._public = public_key_path
        self._private = private_key_path

    def public_key(self, name: str) -> bytes:
        """Returns the public key, in PEM.

        :param name: the name of the key; it only appears in errors, because the key is the same for all names
        :raises CryptoError: the key is not set, or cannot be read
        """
        return _read(self._public, "public", name)

    def private_key(self, name: str) -> bytes:
        """Returns the private key, in PEM.

        :param name: the name of the key; it only appears in errors, because the key is the same for all names
        :raises CryptoError: the key is not set, or cannot be read
        """
        return _read(self._private, "private", name)


def _read(text: str, what: str, name: str) -> bytes:
    if not text:
        raise CryptoError(f"no {what} key is set for {name!r}; pass its path to CryptoKeyReader")
    try:
        return key_source(text).read()
    except UnusableKey as error:
        raise CryptoError(f"the {what} key for {name!r} cannot be read: {error}") from error
