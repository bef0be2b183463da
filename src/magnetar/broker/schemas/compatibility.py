"""Checks of schemas: whether one is valid for its type, and whether a compatibility strategy permits it after
the existing versions."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.schemas import avro_rules, key_value
from magnetar.broker.schemas.data import AVRO_DEFINED, SchemaData, SchemaType
from magnetar.errors import IncompatibleSchema, InvalidSchemaData

STRATEGIES = (
    "ALWAYS_INCOMPATIBLE",
    "ALWAYS_COMPATIBLE",
    "BACKWARD",
    "FORWARD",
    "FULL",
    "BACKWARD_TRANSITIVE",
    "FORWARD_TRANSITIVE",
    "FULL_TRANSITIVE",
)
_TRANSITIVE = frozenset({"BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"})
_LATEST_FOR_CONSUMERS = frozenset({"BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"})
MAX_DEFINITION = 1024 * 1024
"""The maximum size of a definition in bytes; it is limited because versions are cached in memory."""


def same(one: SchemaData, other: SchemaData) -> bool:
    """Whether two schemas are the same, regardless of properties.

    :raises InvalidSchemaData: a definition cannot be parsed
    """
    if one.type is not other.type:
        return False
    if one.type in AVRO_DEFINED:
        return avro_rules.same(one, other)
    return one.data == other.data


def check_producer(versions: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    """Checks that ``new`` may become the next version.

    :param versions: the existing versions, the oldest first; at least one
    :raises IncompatibleSchema: ``strategy`` does not allow ``new``
    :raises InvalidSchemaData: a definition cannot be parsed
    """
    if strategy == "ALWAYS_COMPATIBLE":
        return
    if strategy in _TRANSITIVE:
        _check(versions, new, strategy)
    else:
        _check_latest(versions, new, strategy)


def check_consumer(versions: Sequence[SchemaData], wanted: SchemaData, strategy: str) -> None:
    """Checks that a consumer with the schema ``wanted`` may read a topic with these versions.

    :raises IncompatibleSchema: the consumer may not read the topic
    :raises InvalidSchemaData: a definition cannot be parsed
    """
    if strategy == "ALWAYS_COMPATIBLE":
        return
    if strategy in _LATEST_FOR_CONSUMERS:
        _check_latest(versions, wanted, "BACKWARD")
    else:
        _check(versions, wanted, strategy)


def _check_latest(versions: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    latest = versions[-1]
    if latest.type is not new.type or latest.data != new.data:
        _check([latest], new, strategy)


def _check(versions: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    for known in versions:
        if known.type is not new.type:
            raise IncompatibleSchema(
                f"Incompatible schema: exists schema type {known.type.name}, new schema type {new.type.name}"
            )
    _check_type(versions, new, strategy)


def _check_type(before: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    if new.type in (SchemaType.AVRO, SchemaType.JSON):
        avro_rules.check(before, new, strategy)
    elif new.type is SchemaType.PROTOBUF_NATIVE:
        # Imported here because few schemas are of this type.
        from magnetar.broker.schemas import protobuf_rules

        protobuf_rules.check(before, new, strategy)
    elif new.type is SchemaType.KEY_VALUE:
        _check_key_value(before, new, strategy)
    elif strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleSchema("Schema compatibility strategy is ALWAYS_INCOMPATIBLE")


def _check_key_value(before: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    key, value = key_value.parts(new)
    keys, values = [], []
    for known in before:
        old_key, old_value = key_value.parts(known)
        if old_key.type is not key.type or old_value.type is not value.type:
            raise IncompatibleSchema(
                "Key schemas or Value schemas are different schema type, "
                f"from key schema type is {old_key.type.name} and to key schema is {key.type.name}, "
                f"from value schema is {old_value.type.name} and to value schema is {value.type.name}"
            )
        keys.append(old_key)
        values.append(old_value)
    _check_type(keys, key, strategy)
    _check_type(values, value, strategy)


def validate(schema: SchemaData) -> None:
    """Checks that a declared schema is valid by itself, before it is compared with others.

    :raises InvalidSchemaData: the schema is not valid for its type
    """
    if len(schema.data) > MAX_DEFINITION:
        raise InvalidSchemaData(
            f"The schema definition has {len(schema.data)} bytes; at most {MAX_DEFINITION} are allowed"
        )
    kind = schema.type
    if kind in AVRO_DEFINED:
        if avro_rules.parse(schema).kind == "union" and kind is SchemaType.AVRO:
            raise InvalidSchemaData("Avro schema typed [UNION] is not supported")
    elif kind is SchemaType.PROTOBUF_NATIVE:
        # Imported here because few schemas are of this type.
        from magnetar.broker.schemas import protobuf_rules

        protobuf_rules.root_message(schema)
    elif kind is SchemaType.KEY_VALUE:
        for part in key_value.parts(schema):
            validate(part)
    elif kind is SchemaType.AUTO_CONSUME:
        raise InvalidSchemaData(f"Schema {kind.name} is a client-side schema type")
    elif kind is SchemaType.STRING:
        # The Python client declares the text null.
        if schema.data not in (b"", b"null"):
            text = schema.data[:100].decode(errors="replace")
            raise InvalidSchemaData(f"Invalid schema definition data for string schema : '{text}'")
    elif schema.data and kind is not SchemaType.NONE:
        raise InvalidSchemaData(
            "Invalid schema definition data for primitive schemas :length of schema data should be zero, "
            f"but {len(schema.data)} bytes is found"
        )
