"""Encrypts and decrypts the payloads of entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from magnetar.client.encryption.data_keys import unwrapped, wrapped
from magnetar.client.encryption.key_readers import KeyReader
from magnetar.client.exceptions import CryptoError
from magnetar.io.interfaces import Clock, Randomness
from magnetar.protocol.metadata import Entry
from magnetar.protocol.pulsar_api_pb2 import EncryptionKeys, MessageMetadata

DATA_KEY_BYTES = 32
DATA_KEY_SECONDS = 4 * 3600.0
"""Lifetime of a data key in seconds, as in the Java client."""
_NONCE_BYTES = 12
_MOST_NONCES = 1 << 32
"""Maximum number of payloads that one data key encrypts, each with a random nonce, so that a collision of
nonces stays unlikely (NIST SP 800-38D).
"""
_TAG_BYTES = 16
_KNOWN = 1000
"""Maximum number of data keys that a consumer caches; each producer encrypts with data keys of its own."""
_FIELDS = ("encryption_keys", "encryption_algo", "encryption_param")


class Sealer:
    """Encrypts the payloads of one producer."""

    def __init__(self, names: Sequence[str], reader: KeyReader, randomness: Randomness, clock: Clock) -> None:
        """:param names: the names of the public keys; the private key of any of them can decrypt

        :raises CryptoError: a public key cannot be read, or is not a key
        """
        self._names = names
        self._reader = reader
        self._randomness = randomness
        self._clock = clock
        self._renew()

    @property
    def overhead_bytes(self) -> int:
        """Number of bytes that encryption adds to an entry."""
        return len(self._head) + _NONCE_BYTES + 2 + _TAG_BYTES

    def _renew(self) -> None:
        key = self._randomness.token(DATA_KEY_BYTES)
        keys = [
            EncryptionKeys(key=name, value=wrapped(key, self._reader.public_key(name), name))
            for name in self._names
        ]
        self._cipher = AESGCM(key)
        self._head = MessageMetadata(encryption_keys=keys).SerializePartialToString()
        self._left = _MOST_NONCES
        self._until = self._clock.monotonic() + DATA_KEY_SECONDS

    def seal(self, payload: bytes) -> tuple[bytes, bytes]:
        """Encrypts a payload; returns the metadata for decryption, serialized, and the encrypted payload.

        :raises CryptoError: a new data key is needed, and a public key is no longer available
        """
        if self._left == 0 or self._clock.monotonic() >= self._until:
            self._renew()
        self._left -= 1
        nonce = self._randomness.token(_NONCE_BYTES)
        said = self._head + MessageMetadata(encryption_param=nonce).SerializePartialToString()
        return said, self._cipher.encrypt(nonce, payload, None)


class Opener:
    """Decrypts the payloads of one consumer."""

    def __init__(self, reader: KeyReader) -> None:
        self._reader = reader
        self._known: OrderedDict[bytes, AESGCM] = OrderedDict()

    def opened(self, entry: Entry) -> Entry:
        """Returns the decrypted entry.

        :raises CryptoError: no available key decrypts the entry; the message of the error has the reason for
            each key
        """
        metadata = entry.metadata
        reasons = []
        for each in metadata.encryption_keys:
            try:
                payload = self._cipher(each).decrypt(metadata.encryption_param, entry.payload, None)
            except CryptoError as error:
                reasons.append(str(error))
            except (InvalidTag, ValueError) as error:
                reasons.append(f"its payload does not match the data key: {error or 'it was changed'}")
            else:
                plain = MessageMetadata()
                plain.CopyFrom(metadata)
                for name in _FIELDS:
                    plain.ClearField(name)
                return Entry(entry.broker_metadata, plain, payload, sealed=metadata)
        raise CryptoError("; ".join(reasons))

    def _cipher(self, key: EncryptionKeys) -> AESGCM:
        known = self._known.get(key.value)
        if known is None:
            data_key = unwrapped(key.value, self._reader.private_key(key.key), key.key)
            try:
                known = AESGCM(data_key)
            except ValueError as error:
                raise CryptoError(f"the data key is invalid: {error}") from error
            self._known[key.value] = known
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        return known
