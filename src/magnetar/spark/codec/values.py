"""Converts contents to columns of the topic's schema, each with the schema version of its message."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from magnetar.admin_client import AdminClient, NotFound
from magnetar.client.message_id import MessageId
from magnetar.protocol.key_values import join, split
from magnetar.spark.codec.columns import VALUE
from magnetar.spark.codec.decoders import BAD_VALUES, Decoder, decoder_of
from magnetar.spark.codec.hot_rows import RowBuilder
from magnetar.spark.codec.rows import Malformed
from magnetar.spark.codec.schemas import KEY, RECORDS, Definition, columns_of, definition_of
from magnetar.spark.codec.whole_columns import Whole, whole_of

__all__ = ["ColumnBuilder"]

_BAD_COLUMNS = (*BAD_VALUES, pa.ArrowException)


class ColumnBuilder:
    """Builds columns; one for each task and topic."""

    def __init__(self, admin: AdminClient, topic: str, wanted: Definition) -> None:
        self._admin = admin
        self._topic = topic
        self._wanted = wanted
        schema = to_arrow_schema(StructType(columns_of(wanted).fields), timezone="UTC")
        self._types: dict[str, Any] = {each.name: each.type for each in schema}
        self._decoders: dict[bytes, Decoder | str] = {}
        self._wholes: dict[bytes, Whole | None] = {}

    def columns(
        self, values: pa.Array, rows: RowBuilder, topic: str, malformed: Callable[[Malformed], object]
    ) -> tuple[dict[str, pa.Array], Sequence[bool] | None]:
        """Returns the columns by name, and which rows have them; None: all. Others go to ``malformed``."""
        whole = self._whole(values, rows)
        if whole is not None:
            return whole, None
        raw: list[bytes | None] = values.to_pylist()
        keys = self._keys(rows)
        bad: dict[int, str] = {}
        found: list[object] = [None] * len(raw)
        decoders = [self._decoder(version) for version in rows.schema_versions]
        versions = rows.versions
        for row, data in enumerate(raw):
            decode = decoders[versions[row]]
            if isinstance(decode, str):
                bad[row] = decode
                continue
            try:
                if keys is not None:
                    found[row] = decode(join(keys[row], data))
                elif data is not None:
                    found[row] = decode(data)
            except BAD_VALUES as error:
                bad[row] = f"the content does not fit the schema: {error}"
        columns = self._arrays(found, bad)
        for row, reason in sorted(bad.items()):
            malformed(_told(topic, rows, row, reason, raw[row] or b""))
        return columns, [row not in bad for row in range(len(raw))] if bad else None

    def _whole(self, values: pa.Array, rows: RowBuilder) -> dict[str, pa.Array] | None:
        """Returns the columns without looking at single messages; None: that is necessary."""
        if self._wanted.kind == "KEY_VALUE" or values.null_count:
            return None
        versions = pc.unique(
            pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(rows.versions)])
        )
        if len(versions) != 1:
            return None
        version = rows.schema_versions[versions[0].as_py()]
        if version not in self._wholes:
            written = self._written(version)
            types = {name: kind for name, kind in self._types.items() if not name.startswith("__")}
            self._wholes[version] = None if written is None else whole_of(written, self._wanted, types)
        whole = self._wholes[version]
        return None if whole is None else whole(rows.values, values)

    def _keys(self, rows: RowBuilder) -> list[bytes | None] | None:
        """Returns the keys of messages whose key is outside the content; None: it is not."""
        if not self._wanted.separated:
            return None
        offsets, data, valid = rows.keys.offsets, rows.keys.data, rows.keys.valid
        return [
            bytes(data[offsets[row] : offsets[row + 1]]) if valid[row >> 3] >> (row & 7) & 1 else None
            for row in range(rows.count)
        ]

    def _arrays(self, found: list[object], bad: dict[int, str]) -> dict[str, pa.Array]:
        names = [name for name in self._types if not name.startswith("__")]
        wrapped = self._wanted.kind not in RECORDS and self._wanted.kind != "KEY_VALUE"
        kind = pa.struct([pa.field(name, self._types[name]) for name in names])
        records = [None if each is None else {VALUE: each} for each in found] if wrapped else found
        try:
            array = pa.array(records, kind)
        except _BAD_COLUMNS:
            for row, record in enumerate(records):
                try:
                    pa.array([record], kind)
                except _BAD_COLUMNS as error:
                    bad[row] = f"the content does not fit the schema: {error}"
                    records[row] = None
            array = pa.array(records, kind)
        return dict(zip(names, array.flatten(), strict=True))

    def _decoder(self, version: bytes) -> Decoder | str:
        """Returns the decoder of a schema version, or a text with the reason why there is none."""
        known = self._decoders.get(version)
        if known is None:
            known = self._decoders[version] = self._made(version)
        return known

    def _made(self, version: bytes) -> Decoder | str:
        wanted, written = self._wanted, self._written(version)
        if written is None:
            return f"the topic has no schema version {struct.unpack('>q', version)[0]}"
        if wanted.kind != "KEY_VALUE":
            return decoder_of(written, wanted)
        return _pair(written if written.kind == "KEY_VALUE" else wanted, wanted)

    def _written(self, version: bytes) -> Definition | None:
        """Returns the schema of a version; None: the topic does not have it."""
        if len(version) != 8:
            return self._wanted
        try:
            return definition_of(self._admin, self._topic, struct.unpack(">q", version)[0])
        except NotFound:
            return None


def _pair(written: Definition, wanted: Definition) -> Decoder:
    assert wanted.key is not None
    assert wanted.value is not None
    key = decoder_of(written.key or wanted.key, wanted.key)
    value = decoder_of(written.value or wanted.value, wanted.value)

    def decode(data: bytes) -> object:
        parts = [
            None if part is None else decoder(part)
            for decoder, part in zip((key, value), split(data), strict=True)
        ]
        return {KEY: parts[0], VALUE: parts[1]}

    return decode


def _told(topic: str, rows: RowBuilder, row: int, reason: str, data: bytes) -> Malformed:
    ids = rows.ids
    found = MessageId.deserialize(bytes(ids.data[ids.offsets[row] : ids.offsets[row + 1]]))
    return Malformed(topic, found.ledger_id(), found.entry_id(), found.batch_index(), reason, data)
