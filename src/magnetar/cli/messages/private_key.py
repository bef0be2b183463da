"""The key that a command decrypts with."""

from __future__ import annotations

from magnetar.client import CryptoKeyReader


def private_key(flag: str, given: str | None) -> CryptoKeyReader | None:
    """:param given: a path, ``file:`` or ``data:`` URL of a key in PEM; None: nothing is decrypted

    :raises CryptoError: it cannot be read
    """
    if given is None:
        return None
    reader = CryptoKeyReader(private_key_path=given)
    # Known before anything is taken from the topic.
    reader.private_key(flag)
    return reader
