"""Pulsar's records of schemas: the locator in the metadata store, and the entry in a ledger."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from magnetar.broker.schemas import records_pb2 as pb
from magnetar.broker.schemas.data import SchemaData, SchemaType, StoredSchema
from magnetar.errors import MetadataFailure
from magnetar.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """Where a version is stored."""

    version: int
    ledger_id: int
    entry_id: int
    hash: bytes
    """SHA-256 of the definition."""


def encode_locator(index: Sequence[IndexEntry]) -> bytes:
    """:param index: all versions, the oldest first; at least one"""
    locator = pb.SchemaLocator()
    _fill(locator.info, index[-1])
    for entry in index:
        _fill(locator.index.add(), entry)
    return locator.SerializeToString()


def _fill(record: pb.IndexEntry, entry: IndexEntry) -> None:
    record.version = entry.version
    record.position.ledgerId = entry.ledger_id
    record.position.entryId = entry.entry_id
    record.hash = entry.hash


def decode_locator(value: bytes, path: str) -> list[IndexEntry]:
    """Returns all versions, the oldest first.

    :raises MetadataFailure: the value is not a locator
    """
    try:
        locator = pb.SchemaLocator.FromString(value)
    except DecodeError as error:
        raise MetadataFailure(f"{path}: not a schema locator") from error
    found = {
        each.version: IndexEntry(each.version, each.position.ledgerId, each.position.entryId, each.hash)
        for each in (*locator.index, locator.info)
    }
    return [found[version] for version in sorted(found)]


def encode_schema(schema_id: str, schema: StoredSchema, index: Sequence[IndexEntry]) -> bytes:
    """Returns the entry of a version.

    :param index: the versions before it
    """
    info = pb.SchemaInfo(
        schema_id=schema_id,
        user=schema.data.user,
        schema=schema.data.data,
        timestamp=schema.timestamp_ms,
        deleted=schema.deleted,
    )
    info.type = schema.data.type + 1  # type: ignore[assignment]
    for key, value in schema.data.properties.items():
        info.props.add(key=key, value=value)
    entry = pb.SchemaEntry(schema_data=info.SerializeToString())
    for before in index:
        _fill(entry.index.add(), before)
    return entry.SerializeToString()


def decode_schema(entry: bytes, version: int, where: str) -> StoredSchema:
    """:raises MetadataFailure: the entry is not a schema"""
    try:
        info = pb.SchemaInfo.FromString(pb.SchemaEntry.FromString(entry).schema_data)
    except DecodeError as error:
        raise MetadataFailure(f"{where}: not a schema") from error
    properties = {pair.key: pair.value for pair in info.props}
    data = SchemaData(SchemaType(info.type - 1), info.schema, properties, info.user)
    return StoredSchema(version, data, info.timestamp, info.deleted)
