"""Data keys, encrypted for the owner of a private key: RSA with OAEP, or ECIES on elliptic curves."""

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
"""``openssl ecparam -genkey`` writes these in front of a key; the key names its curve as well."""


def wrapped(data_key: bytes, public_key: bytes, name: str) -> bytes:
    """Encrypts a data key for the owner of the private key.

    :param public_key: PEM, RSA or on an elliptic curve
    :param name: of the key, for errors
    :raises CryptoError: ``public_key`` is not a public key
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
    """Decrypts the data key of :func:`wrapped`.

    :param private_key: PEM without a password
    :raises CryptoError: ``private_key`` is not a private key, or does not match
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
    # All clients of Pulsar use SHA-1 here; OAEP does not depend on collision resistance.
    return padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)  # nosec B303
