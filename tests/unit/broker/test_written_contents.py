"""Contents given as text become what Apache Pulsar 4.0.8 makes of it; what does not fit is refused."""

from __future__ import annotations

import json

import pytest

from magnetar.broker.schemas import key_value
from magnetar.broker.schemas.data import SchemaData, SchemaType
from magnetar.broker.schemas.written_contents import WrittenContents
from magnetar.errors import InvalidRequest

RECORD = json.dumps(
    {
        "type": "record",
        "name": "R",
        "fields": [{"name": "a", "type": ["null", "string"], "default": None}, {"name": "b", "type": "int"}],
    }
).encode()


def content(kind: str, text: str, data: bytes = b"") -> bytes:
    return WrittenContents(SchemaData(SchemaType[kind], data)).content(text, None)


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("STRING", "häß", "68c3a4c39f"),
        ("NONE", "abc", "616263"),
        ("BOOLEAN", "True", "01"),
        ("INT8", "-5", "fb"),
        ("INT16", "5", "0005"),
        ("INT32", "5", "00000005"),
        ("INT64", "5", "0000000000000005"),
        ("FLOAT", "1.5", "3fc00000"),
        ("DOUBLE", "NaN", "7ff8000000000000"),
        ("INSTANT", "2026-11-23T10:11:12.123456789Z", "000000006b041140075bcd15"),
        ("LOCAL_DATE", "2026-11-23", "000000000000512c"),
        ("LOCAL_TIME", "10:11:12.5", "0000215a7b55e500"),
        ("LOCAL_DATE_TIME", "2026-11-23T10:11:12.5", "000000000000512c0000215a7b55e500"),
        # As clients lay them out: Apache Pulsar's own requests understand no such text.
        ("DATE", "1970-01-02", "0000000005265c00"),
        ("TIME", "00:00:01.5", "00000000000005dc"),
        ("TIMESTAMP", "1970-01-01 00:00:01.25", "00000000000004e2"),
        ("TIMESTAMP", "1970-01-01T01:00:01.25+01:00", "00000000000004e2"),
    ],
)
def test_primitives(kind: str, text: str, expected: str) -> None:
    assert content(kind, text).hex() == expected


def test_records() -> None:
    assert content("JSON", '{"b": 1, "a": "ä"}', RECORD) == '{"b":1,"a":"ä"}'.encode()
    assert content("AVRO", '{"a":{"string":"x"},\n"b":1}', RECORD) == b"\x02\x02x\x02"
    assert content("AVRO", '{"b":1}', RECORD) == b"\x00\x02"


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT8", "300"),
        ("INT32", "1_0"),
        ("INT32", "x"),
        ("FLOAT", "1e40"),
        ("DOUBLE", "1_0"),
        ("BOOLEAN", "1"),
        ("JSON", "x"),
        ("JSON", '{"a": NaN}'),
        ("AVRO", '{"a":"x","b":1}'),
        ("AVRO", '{"a":null,"b":"t"}'),
        ("AVRO", "[" * 100_000),
        ("DATE", "Nov 23, 2026"),
        ("LOCAL_TIME", "10:11+01:00"),
        ("LOCAL_DATE_TIME", "2026-11-23"),
        ("PROTOBUF", "x"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, text: str) -> None:
    with pytest.raises(InvalidRequest):
        content(kind, text, RECORD)


def test_keys_and_values() -> None:
    schema = key_value.separated(SchemaData(SchemaType.INT32), SchemaData(SchemaType.STRING))
    contents = WrittenContents(schema)
    assert (contents.encodes_keys, contents.key("7")) == (True, "AAAABw==")
    assert contents.content("v", "7") == b"v"
    inline = WrittenContents(
        SchemaData(SchemaType.KEY_VALUE, schema.data, {**schema.properties, "kv.encoding.type": "INLINE"})
    )
    assert (inline.encodes_keys, inline.key("7")) == (False, "7")
    assert inline.content("v", "7") == b"\0\0\0\4\0\0\0\7\0\0\0\1v"
    with pytest.raises(InvalidRequest, match="The key 'x' does not fit"):
        contents.key("x")
