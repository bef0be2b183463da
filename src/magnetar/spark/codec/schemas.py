"""The schemas of topics, as the broker's registry has them, and the columns for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from magnetar.admin_client import AdminClient, NotFound
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.key_values import SIDES, is_separated, kind_of
from magnetar.spark.codec.avro_types import branch_of, column_type
from magnetar.spark.codec.columns import BYTES, METADATA, METADATA_NAMES, ORIGIN_NAMES, VALUE
from magnetar.spark.codec.protobuf_types import PARSING_INFO, layout_of
from magnetar.spark.connection import Connection
from magnetar.spark.errors import SparkSourceError
from magnetar.spark.topics import topics_of

__all__ = [
    "KEY",
    "NOTHING",
    "PRIMITIVES",
    "PROTOBUF",
    "RECORDS",
    "TIMES",
    "Definition",
    "columns_of",
    "definition_of",
    "definition_of_all_versions",
    "definition_of_fitting_versions",
    "shared_definition",
    "type_of",
]

KEY = "key"
RECORDS = ("AVRO", "JSON")
PROTOBUF = ("PROTOBUF_NATIVE", "PROTOBUF")

TIMES = ("TIME", "LOCAL_TIME")
"""Schema types whose column is a number of microseconds since midnight, because few functions of Spark
support its time type.
"""
PRIMITIVES: dict[str, DataType] = {
    "NONE": BinaryType(),
    "BYTES": BinaryType(),
    "STRING": StringType(),
    "BOOLEAN": BooleanType(),
    "INT8": ByteType(),
    "INT16": ShortType(),
    "INT32": IntegerType(),
    "INT64": LongType(),
    "FLOAT": FloatType(),
    "DOUBLE": DoubleType(),
    "DATE": DateType(),
    "TIME": LongType(),
    "TIMESTAMP": TimestampType(),
    "INSTANT": TimestampType(),
    "LOCAL_DATE": DateType(),
    "LOCAL_TIME": LongType(),
    "LOCAL_DATE_TIME": TimestampNTZType(),
}
_OTHER_NAMES = {
    "KEYVALUE": "KEY_VALUE",
    "LOCALDATE": "LOCAL_DATE",
    "LOCALDATETIME": "LOCAL_DATE_TIME",
    "LOCALTIME": "LOCAL_TIME",
    "PROTOBUFNATIVE": "PROTOBUF_NATIVE",
}


@dataclass(frozen=True)
class Definition:
    """A schema: its type and its definition; a KEY_VALUE schema has two parts."""

    kind: str
    text: str = ""
    """The definition: in Avro for AVRO and JSON; see ``protobuf_types`` for protobuf, for which it is empty
    if the registry does not contain the fields.
    """
    key: Definition | None = None
    value: Definition | None = None
    separated: bool = False
    """For KEY_VALUE: whether the key is the message's key, and not a part of the payload."""
    newest: str = ""
    """If ``text`` combines several schema versions: the definition for messages without a version; empty:
    ``text`` applies to these messages, too.
    """
    refused: tuple[tuple[int, str], ...] = ()
    """Schema versions whose messages are treated as malformed, each with the reason."""


NOTHING = Definition("BYTES")


def definition_of(admin: AdminClient, topic: str, version: int | None = None) -> Definition:
    """Returns a topic's schema; if the topic has no schema, the schema of bytes.

    :param version: the version; None: the newest version
    :raises NotFound: the topic's schema does not have this version
    """
    try:
        found = admin.schema(str(TopicName.parse(topic).base), version)
    except NotFound:
        if version is not None:
            raise
        return NOTHING
    return _parsed(str(found["type"]), found.get("data") or "", found.get("properties") or {})


def definition_of_all_versions(
    admin: AdminClient, topic: str, known: MutableMapping[int, Definition]
) -> Definition:
    """Returns a topic's newest schema, extended by the fields that only earlier versions have; new messages
    have null in these fields.

    :param known: the versions that were already read; the function adds the versions that it reads
    """
    newest = definition_of(admin, topic)
    if newest.kind not in (*RECORDS, *PROTOBUF):
        return newest
    earlier: list[Definition] = []
    for version in range(int(admin.schema(str(TopicName.parse(topic).base))["version"])):
        if version not in known:
            try:
                known[version] = definition_of(admin, topic, version)
            except NotFound:
                known[version] = NOTHING
        if known[version].kind == newest.kind:
            earlier.append(known[version])
    return _joined([*earlier, newest])


def _joined(versions: Sequence[Definition]) -> Definition:
    """Returns the last version, extended by the fields of all earlier versions.

    :param versions: schemas of the same type, oldest first
    :raises SparkSourceError: the versions cannot share one set of columns
    """
    last = versions[-1]
    if last.kind in PROTOBUF:
        texts = [each.text for each in versions if each.text]
        if not last.text or len(set(texts)) == 1:
            return last
        layout = layout_of(texts[0])
        for text in texts[1:]:
            layout = layout.followed_by(layout_of(text))
        return replace(last, text=layout.to_json(), newest=last.text)
    if last.kind not in RECORDS:
        return last
    record = json.loads(last.text)
    for each in reversed(versions[:-1]):
        _add_fields(record, json.loads(each.text))
    if record == json.loads(last.text):
        return last
    return replace(last, text=json.dumps(record), newest=last.text)


def definition_of_fitting_versions(
    admin: AdminClient,
    topic: str,
    known: MutableMapping[int, Definition],
    refusal: Callable[[Definition], str],
) -> Definition:
    """Like :func:`definition_of_all_versions`, but leaves out versions whose columns cannot be used.

    :param refusal: returns the reason why the columns of a version cannot be used; empty: they can be used.
        It is called with the versions from the oldest on
    :raises SparkSourceError: no version can be used
    """
    base = str(TopicName.parse(topic).base)
    try:
        newest = int(admin.schema(base)["version"])
    except NotFound:
        return NOTHING
    accepted: list[Definition] = []
    refused: list[tuple[int, str]] = []
    for version in range(newest + 1):
        if version not in known:
            try:
                known[version] = definition_of(admin, topic, version)
            except NotFound:
                # Deleted, so no message has it.
                continue
        definition = known[version]
        reason = _other_form(accepted, definition) or _unusable(accepted, definition, refusal)
        if reason:
            refused.append((version, f"the table cannot have its schema version {version}: {reason}"))
        else:
            accepted.append(definition)
    if not accepted:
        raise SparkSourceError(refused[-1][1] if refused else f"{topic} has no schema")
    return replace(_joined(accepted), refused=tuple(refused))


def _other_form(accepted: Sequence[Definition], definition: Definition) -> str:
    before = accepted[-1] if accepted else definition
    if (before.kind, before.separated) == (definition.kind, definition.separated):
        return ""
    return f"the schema was {before.kind} and is now {definition.kind}"


def _unusable(
    accepted: Sequence[Definition], definition: Definition, refusal: Callable[[Definition], str]
) -> str:
    try:
        if definition.kind in PROTOBUF:
            # Its names may be others than those of the columns.
            definition = _joined([*accepted, definition])
        return refusal(definition)
    except SparkSourceError as error:
        return str(error)


def _add_fields(present: object, earlier: object) -> None:
    """Adds to a definition the fields and union types that only an earlier version has, also within nested
    types.
    """
    if isinstance(present, list) and isinstance(earlier, list):
        ours = {branch_of(each): each for each in present if each != "null"}
        theirs = {branch_of(each): each for each in earlier if each != "null"}
        for name in ours.keys() & theirs.keys():
            _add_fields(ours[name], theirs[name])
        if len(ours) > 1:
            present += [each for name, each in theirs.items() if name not in ours]
        return
    if isinstance(present, list) or isinstance(earlier, list):
        _add_fields(*(each if isinstance(each, list) else [each] for each in (present, earlier)))
        return
    if not isinstance(present, dict) or not isinstance(earlier, dict):
        return
    for part in ("items", "values"):
        if part in present and part in earlier:
            _add_fields(present[part], earlier[part])
    if "fields" not in present:
        return
    fields = {each["name"]: each for each in present["fields"]}
    for field in earlier.get("fields", ()):
        if field["name"] in fields:
            _add_fields(fields[field["name"]]["type"], field["type"])
        else:
            kinds = field["type"] if isinstance(field["type"], list) else [field["type"]]
            kinds = ["null", *(each for each in kinds if each != "null")]
            present["fields"].append({"name": field["name"], "type": kinds, "default": None})


def _parsed(kind: str, text: Any, properties: Mapping[str, str]) -> Definition:
    kind = _OTHER_NAMES.get(kind.upper(), kind.upper())
    if kind == "PROTOBUF":
        return Definition(kind, properties.get(PARSING_INFO, ""))
    if kind != "KEY_VALUE":
        return Definition(kind, text if isinstance(text, str) else json.dumps(text))
    parts = json.loads(text) if isinstance(text, str) else text
    key, value = (_parsed(kind_of(properties, side), parts.get(side) or "", {}) for side in SIDES)
    return Definition(kind, "", key, value, is_separated(properties))


def shared_definition(connection: Connection) -> Definition:
    """Returns the schema that all topics of a query share; if their schemas differ and the options permit
    different schemas, returns the schema of bytes.

    :raises SparkSourceError: the schemas differ
    """
    options = connection.options
    if options.value_format == "bytes" or not (options.topics or options.topics_pattern):
        return NOTHING
    found = {topic: definition_of(connection.admin, topic) for topic in topics_of(connection)}
    different = set(found.values())
    if len(different) <= 1:
        return next(iter(different), NOTHING)
    if options.allow_different_topic_schemas:
        return NOTHING
    first, *others = sorted(found)
    other = next(topic for topic in others if found[topic] != found[first])
    raise SparkSourceError(
        f"{first} and {other} have different schemas; use allowDifferentTopicSchemas=true to read their bytes"
    )


def columns_of(definition: Definition) -> StructType:
    """Returns the columns for a schema, including the metadata columns.

    :raises SparkSourceError: the schema is not supported; the error text has the reason
    """
    if definition.kind in ("NONE", "BYTES"):
        return BYTES
    if definition.kind == "KEY_VALUE":
        assert definition.key is not None
        assert definition.value is not None
        fields = [
            StructField(KEY, type_of(definition.key)),
            StructField(VALUE, type_of(definition.value)),
        ]
    else:
        kind = type_of(definition)
        fields = list(kind.fields) if isinstance(kind, StructType) else [StructField(VALUE, kind)]
    clash = sorted({each.name for each in fields} & {*METADATA_NAMES, *ORIGIN_NAMES})
    if clash:
        raise SparkSourceError(
            f"the schema has a field {clash[0]!r}, which is also the name of a "
            "metadata column; use value.format=bytes to read the bytes"
        )
    return StructType([*fields, *METADATA])


def type_of(definition: Definition) -> DataType:
    """Returns the Spark type of a schema.

    :raises SparkSourceError: the schema is not supported
    """
    if definition.kind in RECORDS:
        # JSON does not tell which type of a union a value has.
        return column_type(json.loads(definition.text), has_members=definition.kind == "AVRO")
    if definition.kind in PROTOBUF:
        if not definition.text and definition.kind == "PROTOBUF":
            return BinaryType()
        return layout_of(definition.text).type
    found = PRIMITIVES.get(definition.kind)
    if found is None:
        raise SparkSourceError(
            f"a schema of type {definition.kind} has no columns; use value.format=bytes to read the bytes"
        )
    return found
