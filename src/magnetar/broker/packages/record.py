"""The metadata of a package: what its publisher states, and where its bytes are."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, field

from magnetar.errors import MetadataFailure
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class PackageMetadata:
    """Pulsar's record of the same name."""

    description: str = ""
    contact: str | None = None
    create_time_ms: int = 0
    modification_time_ms: int = 0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PackageRecord:
    ledger_id: int
    entries: int
    length: int
    """Bytes of all entries together."""
    sha256: str
    """Of all bytes, in hexadecimal digits."""
    metadata: PackageMetadata


def encode_record(record: PackageRecord) -> bytes:
    return json.dumps(asdict(record), separators=(",", ":"), ensure_ascii=False).encode()


def decode_record(value: bytes, path: str) -> PackageRecord:
    """:raises MetadataFailure: the value is not a package's record"""
    try:
        found = json.loads(value)
        told = found.pop("metadata")
        return PackageRecord(**found, metadata=PackageMetadata(**told))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MetadataFailure(f"{path}: the stored value is not a package") from error
