"""Avro definitions: parsing them, and whether one can read what another wrote.

Apache's library parses them. It is loaded for the first definition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.broker.schemas import avro_resolution
from magnetar.broker.schemas.data import SchemaData
from magnetar.errors import IncompatibleSchema, InvalidSchemaData

_READS_OLD = frozenset({"BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_READ_BY_OLD = frozenset({"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})


def parse(schema: SchemaData) -> Any:
    """Returns the parsed definition.

    :raises InvalidSchemaData: the definition is not an Avro schema
    """
    from avro.errors import AvroException
    from avro.schema import parse as parse_definition

    text = schema.definition
    try:
        found = parse_definition(text, validate_enum_symbols=False)
        wrong = avro_resolution.bad_default(found)
    except (AvroException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InvalidSchemaData(f"Invalid schema definition data for {schema.type.name} schema") from error
    if wrong is not None:
        raise InvalidSchemaData(f"Invalid default for field {wrong} of {schema.type.name} schema")
    return found


def same(one: SchemaData, other: SchemaData) -> bool:
    """Whether two definitions have the same meaning, however they are written; documentation does not count.

    :raises InvalidSchemaData: one of them is not an Avro schema
    """
    if one.data == other.data:
        return True
    try:
        return bool(_essence(parse(one).to_json()) == _essence(parse(other).to_json()))
    except RecursionError as error:
        raise InvalidSchemaData(f"{one.type.name} schema is nested too deep") from error


def _essence(definition: Any) -> Any:
    """Removes documentation and aliases, which Java's library does not compare either."""
    if isinstance(definition, list):
        return [_essence(each) for each in definition]
    if not isinstance(definition, dict):
        return definition
    return {
        key: value if key == "default" else _essence(value)
        for key, value in definition.items()
        if key not in ("doc", "aliases")
    }


def check(before: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    """:param before: the versions that ``new`` must be compatible with

    :raises IncompatibleSchema: ``strategy`` does not let ``new`` follow them
    """
    if strategy == "ALWAYS_COMPATIBLE":
        return
    try:
        _check(before, new, strategy)
    except RecursionError as error:
        raise InvalidSchemaData(f"{new.type.name} schema is nested too deep") from error


def _check(before: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    reads, is_read = strategy in _READS_OLD, strategy in _READ_BY_OLD
    parsed = parse(new)
    for known in before:
        old = parse(known)
        reason = None
        if not reads and not is_read:
            reason = "no change is allowed"
        if reads:
            reason = avro_resolution.why_not(old, parsed)
        if reason is None and is_read:
            reason = avro_resolution.why_not(parsed, old)
        if reason is not None:
            raise IncompatibleSchema(
                f"Error during schema compatibility check with strategy {strategy}: {reason}"
            )
