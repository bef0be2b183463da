"""The body of an entry as bookies store it: ids, last-add-confirmed, length, a digest, the payload.

::

    0 ledger id | 8 entry id | 16 last-add-confirmed | 24 length | 32 digest | payload

Bookies do not check the body; readers do. The digest covers the first 32 bytes and the payload; the length is
the total size in bytes of all payloads up to and including this one.
"""

from __future__ import annotations

import hmac
import struct
import zlib
from collections.abc import Callable
from enum import Enum
from hashlib import sha1
from typing import NamedTuple

from magnetar.io.crc32c import crc32c
from magnetar.ledger.interface import DataDamaged

_HEADER = struct.Struct(">qqqq")
_TOLD = struct.Struct(">qq")
_U32 = struct.Struct(">I")
_U64 = struct.Struct(">Q")

MASTER_KEY_BYTES = 20


class DigestType(Enum):
    """The kind of digest that protects a ledger's entries; the names are those of
    ``managedLedgerDigestType``."""

    CRC32 = "CRC32"
    MAC = "MAC"
    CRC32C = "CRC32C"
    DUMMY = "DUMMY"


class Body(NamedTuple):
    """The fields of an entry's body; the payload begins at ``start``."""

    ledger_id: int
    entry_id: int
    last_add_confirmed: int
    length: int
    start: int


def master_key(password: bytes) -> bytes:
    """Returns the key that proves to bookies that a writer, or a fencing client, knows the ledger's
    password."""
    return sha1(b"ledger" + password, usedforsecurity=False).digest()


class Digest:
    """The digest of one ledger's entries.

    :param password: the password of the ledger; only used by MAC
    """

    def __init__(self, kind: DigestType, password: bytes) -> None:
        self.kind = kind
        self._compute: Callable[[bytes, bytes | memoryview], bytes]
        if kind is DigestType.CRC32C:
            self._compute = _crc32c
        elif kind is DigestType.CRC32:
            self._compute = _crc32
        elif kind is DigestType.MAC:
            key = sha1(b"mac" + password, usedforsecurity=False).digest()
            self._compute = lambda header, payload: _mac(key, header, payload)
        else:
            self._compute = lambda _header, _payload: b""
        self.start = _HEADER.size + len(self._compute(bytes(_HEADER.size), b""))
        """The offset of the payload in a body."""

    def head(
        self, ledger_id: int, entry_id: int, confirmed: int, length: int, payload: bytes | memoryview
    ) -> bytes:
        """Returns the bytes in front of the payload in an entry's body.

        :param confirmed: the last entry that is known to have its ack quorum; -1: none
        :param length: the total bytes of the ledger's payloads up to and including this one
        """
        header = _HEADER.pack(ledger_id, entry_id, confirmed, length)
        return header + self._compute(header, payload)

    def told(self, ledger_id: int, confirmed: int) -> bytes:
        """Returns the body of a separate report of the last-add-confirmed (explicit LAC): all entries up to
        ``confirmed`` have reached their ack quorum."""
        said = _TOLD.pack(ledger_id, confirmed)
        return said + self._compute(said, b"")

    def check_told(self, ledger_id: int, body: bytes) -> int:
        """Returns the last-add-confirmed that the body of a separate report (explicit LAC) states.

        :raises DataDamaged: the body belongs to another ledger, is too short, or was changed
        """
        said = body[: _TOLD.size]
        if len(said) < _TOLD.size or body[_TOLD.size :] != self._compute(said, b""):
            raise DataDamaged(
                f"the last confirmed entry that a bookie reported for ledger {ledger_id} has a wrong digest"
            )
        found_ledger, confirmed = _TOLD.unpack(said)
        if found_ledger != ledger_id:
            raise DataDamaged(
                f"a bookie answered a request for ledger {ledger_id} with the last confirmed entry of "
                f"ledger {found_ledger}"
            )
        return int(confirmed)

    def check(self, ledger_id: int, entry_id: int, body: bytes) -> Body:
        """Checks a body that was read for an entry, and returns its fields.

        :param entry_id: the id of the entry that was requested; -1: any entry of the ledger is accepted
        :raises DataDamaged: the body belongs to another entry, is too short, or was changed
        """
        if len(body) < self.start:
            raise DataDamaged(
                f"a bookie returned only {len(body)} bytes for entry {entry_id} of ledger {ledger_id}"
            )
        found_ledger, found_entry, confirmed, length = _HEADER.unpack_from(body)
        if found_ledger != ledger_id or entry_id not in (-1, found_entry):
            raise DataDamaged(
                f"a bookie returned entry {found_entry} of ledger {found_ledger} instead of entry {entry_id} "
                f"of ledger {ledger_id}"
            )
        payload = memoryview(body)[self.start :]
        if body[_HEADER.size : self.start] != self._compute(body[: _HEADER.size], payload):
            raise DataDamaged(f"the digest of entry {found_entry} of ledger {ledger_id} is wrong")
        # In a copy by AutoRecovery, last-add-confirmed is that of the time of the copy: it may be this entry
        # or a later one.
        if confirmed < -1 or length < len(payload):
            raise DataDamaged(
                f"entry {found_entry} of ledger {ledger_id} has an invalid header: "
                f"last confirmed entry {confirmed}, ledger length {length}, payload of {len(payload)} bytes"
            )
        return Body(found_ledger, found_entry, confirmed, length, self.start)


def _crc32c(header: bytes, payload: bytes | memoryview) -> bytes:
    return _U32.pack(crc32c(payload, crc32c(header)))


def _crc32(header: bytes, payload: bytes | memoryview) -> bytes:
    return _U64.pack(zlib.crc32(payload, zlib.crc32(header)))


def _mac(key: bytes, header: bytes, payload: bytes | memoryview) -> bytes:
    made = hmac.new(key, header, "sha1")
    made.update(payload)
    return made.digest()
