"""ECIES without a cipher, as in Bouncy Castle: Pulsar's Java clients use it for elliptic curves.

KDF2 with SHA-1 derives, from the shared secret with an ephemeral key, a key for HMAC-SHA1 and bytes that are
combined with the content by XOR: IEEE 1363a, DHAES mode, with empty parameters.
"""

from __future__ import annotations

from hashlib import sha1
from hmac import compare_digest
from hmac import digest as hmac_digest

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

_MAC_KEY_BYTES = 16
_MAC_BYTES = 20
_NO_PARAMETERS = bytes(8)
"""The length of the empty encoding parameters, in bits."""


class NotForThisKey(Exception):
    """The content was encrypted for another key, or is damaged."""


def encrypt(key: ec.EllipticCurvePublicKey, content: bytes) -> bytes:
    """Returns the point of an ephemeral key, the encrypted content, and its authentication code."""
    own = ec.generate_private_key(key.curve)
    point = own.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    mac_key, pad = _keys(point + own.exchange(ec.ECDH(), key), len(content))
    combined = _xor(content, pad)
    return point + combined + _authentication(mac_key, combined)


def decrypt(key: ec.EllipticCurvePrivateKey, encrypted: bytes) -> bytes:
    """:raises NotForThisKey: the content was encrypted for another key"""
    size = 1 + 2 * ((key.curve.key_size + 7) // 8)
    point, combined, mac = encrypted[:size], encrypted[size:-_MAC_BYTES], encrypted[-_MAC_BYTES:]
    try:
        other = ec.EllipticCurvePublicKey.from_encoded_point(key.curve, point)
        secret = key.exchange(ec.ECDH(), other)
    except ValueError as error:
        raise NotForThisKey("it does not begin with a point of the key's curve") from error
    mac_key, pad = _keys(point + secret, len(combined))
    if not compare_digest(_authentication(mac_key, combined), mac):
        raise NotForThisKey("its authentication tag does not match the key")
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
