"""Keys of data, encrypted for whoever has a private key: RSA with OAEP, or ECIES on elliptic curves."""

from __future__ import annotations

import re

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from magnetar.client.encryption import ecies
from magnetar.client.exceptions import CryptoError

_UNUSABLE = (ValueError, TypeError, UnsupportedAlgorithm)
_PARAMETERS = re.compile(rb"-----BEGIN EC PARAMETERS-----.*?-----END EC PARAMETERS-----\s*", re.DOTALL)
"""Stands in front of keys as ``openssl ecparam -genkey`` writes them; the key names its curve as well."""


def wrapped(data_key: bytes, public_key: bytes, name: str) -> bytes:
    """A key of data, for the holder of the private key.

    :param public_key: PEM, RSA or on an elliptic curve
    :param name: of the key, for errors
    :raises CryptoError: the public key is none
    """
    try:
        key = load_pem_public_key(_PARAMETERS.sub(b"", public_key))
        if isinstance(key, rsa.RSAPublicKey):
            return key.encrypt(data_key, _oaep())
        if isinstance(key, ec.EllipticCurvePublicKey):
            return ecies.encrypt(key, data_key)
    except _UNUSABLE as error:
        raise CryptoError(f"the public key for {name!r} cannot be used: {error}") from error
    raise CryptoError(f"the public key for {name!r} must be RSA or on an elliptic curve")


def unwrapped(encrypted: bytes, private_key: bytes, name: str) -> bytes:
    """The key of data that :func:`wrapped` encrypted.

    :param private_key: PEM without a password
    :raises CryptoError: the private key is none, or another one than it was encrypted for
    """
    try:
        key = load_pem_private_key(_PARAMETERS.sub(b"", private_key), None)
    except _UNUSABLE as error:
        raise CryptoError(f"the private key for {name!r} cannot be used: {error}") from error
    try:
        if isinstance(key, rsa.RSAPrivateKey):
            return key.decrypt(encrypted, _oaep())
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return ecies.decrypt(key, encrypted)
    except (ValueError, ecies.NotForThisKey) as error:
        raise CryptoError(f"it was not encrypted for the private key given for {name!r}: {error}") from error
    raise CryptoError(f"the private key for {name!r} must be RSA or on an elliptic curve")


def _oaep() -> padding.OAEP:
    # What all of Pulsar's clients use; OAEP does not rest on collisions of its hash.
    return padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)  # nosec B303
