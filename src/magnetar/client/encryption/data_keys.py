"""Encrypts data keys with a public key, and decrypts them with the private key: RSA with OAEP, or ECIES on
elliptic curves.
"""

from __future__ import annotations

import re
from hashlib import sha1
from hmac import compare_digest
from hmac import digest as hmac_digest

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from magnetar.client.exceptions import CryptoError

_UNUSABLE = (ValueError, TypeError, UnsupportedAlgorithm)
_PARAMETERS = re.compile(rb"-----BEGIN EC PARAMETERS-----.*?-----END EC PARAMETERS-----\s*", re.DOTALL)
"""Curve parameters that ``openssl ecparam -genkey`` writes before a key; redundant, because the key names its
curve.
"""
_MAC_KEY_BYTES = 16
_MAC_BYTES = 20
_NO_PARAMETERS = bytes(8)
"""The length field of the encoding parameters (length in bits, as 8 bytes): 0, because there are no
parameters. The HMAC covers this field, too.
"""


def wrapped(data_key: bytes, public_key: bytes, name: str) -> bytes:
    """Encrypts a data key for the owner of the private key.

    :param public_key: an RSA or elliptic-curve key in PEM
    :param name: the name of the key, for errors
    :raises CryptoError: ``public_key`` is not a public key
    """
    try:
        key = load_pem_public_key(_PARAMETERS.sub(b"", public_key))
        if isinstance(key, rsa.RSAPublicKey):
            return key.encrypt(data_key, _oaep())
        if isinstance(key, ec.EllipticCurvePublicKey):
            return encrypt(key, data_key)
    except _UNUSABLE as error:
        raise CryptoError(f"the public key for {name!r} cannot be used: {error}") from error
    raise CryptoError(f"the public key for {name!r} must be RSA or on an elliptic curve")


def unwrapped(encrypted: bytes, private_key: bytes, name: str) -> bytes:
    """Decrypts a data key that :func:`wrapped` encrypted.

    :param private_key: the private key in PEM, without a password
    :raises CryptoError: ``private_key`` is not a private key, or does not match the public key
    """
    try:
        key = load_pem_private_key(_PARAMETERS.sub(b"", private_key), None)
    except _UNUSABLE as error:
        raise CryptoError(f"the private key for {name!r} cannot be used: {error}") from error
    try:
        if isinstance(key, rsa.RSAPrivateKey):
            return key.decrypt(encrypted, _oaep())
        if isinstance(key, ec.EllipticCurvePrivateKey):
            return decrypt(key, encrypted)
    except (ValueError, NotForThisKey) as error:
        raise CryptoError(
            f"the data key was not encrypted for the private key of {name!r}: {error}"
        ) from error
    raise CryptoError(f"the private key for {name!r} must be RSA or on an elliptic curve")


def _oaep() -> padding.OAEP:
    # All clients of Pulsar use SHA-1 here; OAEP does not depend on collision resistance.
    return padding.OAEP(padding.MGF1(SHA1()), SHA1(), None)  # nosec B303


class NotForThisKey(Exception):
    """The data was encrypted for another key, or is damaged.

    The encryption is IEEE 1363a, DHAES mode, with empty parameters: KDF2 with SHA-1 derives an HMAC-SHA1 key
    and a key stream for XOR from the secret shared with an ephemeral key.
    """


def encrypt(key: ec.EllipticCurvePublicKey, content: bytes) -> bytes:
    """Encrypts data with ECIES; returns the ephemeral public point, the encrypted data and the authentication
    code, concatenated.
    """
    own = ec.generate_private_key(key.curve)
    point = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    mac_key, pad = _keys(point + own.exchange(ec.ECDH(), key), len(content))
    combined = _xor(content, pad)
    return point + combined + _authentication(mac_key, combined)


def decrypt(key: ec.EllipticCurvePrivateKey, encrypted: bytes) -> bytes:
    """Decrypts what :func:`encrypt` returned.

    :raises NotForThisKey: the data was encrypted for another key, or is damaged
    """
    size = 1 + 2 * ((key.curve.key_size + 7) // 8)
    point, combined, mac = encrypted[:size], encrypted[size:-_MAC_BYTES], encrypted[-_MAC_BYTES:]
    try:
        other = ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point)
        secret = key.exchange(ec.ECDH(), other)
    except ValueError as error:
        raise NotForThisKey("the encrypted content does not begin with a point of the key's curve") from error
    mac_key, pad = _keys(point + secret, len(combined))
    if not compare_digest(_authentication(mac_key, combined), mac):
        raise NotForThisKey("the authentication tag of the encrypted content does not match the key")
    return _xor(combined, pad)


def _keys(shared: bytes, length: int) -> tuple[bytes, bytes]:
    wanted = _MAC_KEY_BYTES + length
    rounds = range(1, 2 + wanted // 20)
    # The format defines KDF2 with SHA-1; it does not depend on collision resistance.
    made = b"".join(
        sha1(shared + number.to_bytes(4, "big"), usedforsecurity=False).digest() for number in rounds
    )
    return made[:_MAC_KEY_BYTES], made[_MAC_KEY_BYTES:wanted]


def _authentication(key: bytes, combined: bytes) -> bytes:
    return hmac_digest(key, combined + _NO_PARAMETERS, "sha1")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
