"""The private key of a command for decryption."""

from __future__ import annotations

from magnetar.client import CryptoKeyReader


def private_key(flag: str, given: str | None) -> CryptoKeyReader | None:
    """:param given: a path, ``file:`` or ``data:`` URL of a key in PEM; None: without decryption

    :raises CryptoError: the key cannot be read
    """
    if given is None:
        return None
    reader = CryptoKeyReader(private_key_path=given)
    # Check before receiving messages.
    reader.private_key(flag)
    return reader
