"""Avro definitions: parsing them, and whether one can read what another wrote, by Java's rules of resolution.

Apache's library parses them; it is loaded for the first definition. Pulsar and its clients resolve schemas
with Java's library or an equivalent one. It is more lenient than the specification and than Apache's Python
library: records need not have the same name, and a symbol that an enum lacks is an error only when a message
contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from magnetar.broker.schemas.data import SchemaData
from magnetar.errors import IncompatibleSchema, InvalidSchemaData

_READS_OLD = frozenset({"BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_READ_BY_OLD = frozenset({"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_RECORDS = frozenset({"record", "error"})


def parse(schema: SchemaData) -> Any:
    """Returns the parsed definition.

    :raises InvalidSchemaData: the definition is not an Avro schema
    """
    from avro.errors import AvroException
    from avro.schema import parse as parse_definition

    text = schema.definition
    try:
        found = parse_definition(text, validate_enum_symbols=False)
        wrong = bad_default(found)
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
            reason = why_not(old, parsed)
        if reason is None and is_read:
            reason = why_not(parsed, old)
        if reason is not None:
            raise IncompatibleSchema(
                f"Error during schema compatibility check with strategy {strategy}: {reason}"
            )


def why_not(writer: Any, reader: Any) -> str | None:
    """Returns why data of ``writer`` cannot be read with ``reader``; None if it can.

    Both are schemas of Apache's library. Each pair of records is compared once, so that recursive ones end.
    """
    return _Resolution(reader).resolve(writer, reader)


def valid_default(schema: Any, value: Any) -> bool:
    """Whether a JSON value is a valid default of a field with that schema."""
    kind = schema.type
    if kind == "union":
        return any(valid_default(branch, value) for branch in schema.schemas)
    if kind == "array":
        return isinstance(value, list) and all(valid_default(schema.items, item) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(valid_default(schema.values, item) for item in value.values())
    if kind in _RECORDS:
        return isinstance(value, dict) and all(
            valid_default(field.type, value[field.name]) if field.name in value else field.has_default
            for field in schema.fields
        )
    return _valid_plain(kind, value)


def _valid_plain(kind: str, value: Any) -> bool:
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("int", "long"):
        bits = 31 if kind == "int" else 63
        return isinstance(value, int) and not isinstance(value, bool) and -(1 << bits) <= value < 1 << bits
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, str)


def bad_default(schema: Any) -> str | None:
    """Returns the first field whose default does not fit its type; None if all defaults do."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        current = waiting.pop()
        kind = current.type
        if kind == "union":
            waiting.extend(current.schemas)
        elif kind == "array":
            waiting.append(current.items)
        elif kind == "map":
            waiting.append(current.values)
        elif kind in _RECORDS and id(current) not in seen:
            seen.add(id(current))
            for field in current.fields:
                if field.has_default and not valid_default(field.type, field.default):
                    return f"{current.fullname}.{field.name}"
                waiting.append(field.type)
    return None


class _Resolution:
    """One comparison; keeps the aliases that the reader's schema declares."""

    def __init__(self, reader: Any) -> None:
        self._names: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        self._seen: dict[tuple[int, int], str | None] = {}
        self._collect(reader, set())

    def _collect(self, schema: Any, seen: set[int]) -> None:
        kind = schema.type
        if kind == "union":
            for branch in schema.schemas:
                self._collect(branch, seen)
        elif kind in ("array", "map"):
            self._collect(schema.items if kind == "array" else schema.values, seen)
        elif kind in _NAMED and id(schema) not in seen:
            seen.add(id(schema))
            package = schema.fullname.rpartition(".")[0]
            for alias in schema.get_prop("aliases") or ():
                full = alias if "." in alias or not package else f"{package}.{alias}"
                self._names[full] = schema.fullname
            if kind in _RECORDS:
                for field in schema.fields:
                    for alias in field.get_prop("aliases") or ():
                        self._fields.setdefault(schema.fullname, {})[alias] = field.name
                    self._collect(field.type, seen)

    def _name(self, writer: Any) -> str:
        """Returns the reader's name for a name in the writer's schema."""
        name: str = writer.fullname
        return self._names.get(name, name)

    def resolve(self, writer: Any, reader: Any) -> str | None:
        """Returns why the reader cannot read the writer's data; None if it can."""
        if writer.type == "union":
            return self._writer_union(writer, reader)
        if writer.type in _RECORDS and reader.type in _RECORDS:
            return self._record(writer, reader)
        if writer.type == reader.type:
            return self._same_type(writer, reader)
        if reader.type == "union":
            return self._reader_union(writer, reader)
        if reader.type in _PROMOTIONS.get(writer.type, ()):
            return None
        return f"{writer.type} cannot be read as {reader.type}"

    def _same_type(self, writer: Any, reader: Any) -> str | None:
        kind = writer.type
        if kind == "array":
            return self.resolve(writer.items, reader.items)
        if kind == "map":
            return self.resolve(writer.values, reader.values)
        if kind in ("enum", "fixed") and self._name(writer) != reader.fullname:
            return f"{kind} {writer.fullname} is not {reader.fullname}"
        if kind == "fixed" and writer.size != reader.size:
            return f"fixed {writer.fullname} has {writer.size} bytes, not {reader.size}"
        return None

    def _record(self, writer: Any, reader: Any) -> str | None:
        pair = (id(writer), id(reader))
        if pair in self._seen:
            return self._seen[pair]
        self._seen[pair] = None
        self._seen[pair] = found = self._compare_fields(writer, reader)
        return found

    def _compare_fields(self, writer: Any, reader: Any) -> str | None:
        renamed = self._fields.get(self._name(writer), {})
        written = {renamed.get(field.name, field.name): field for field in writer.fields}
        for field in reader.fields:
            if field.name not in written and not field.has_default:
                return f"field {reader.fullname}.{field.name} is not written, and has no default"
        for field in reader.fields:
            if field.name in written:
                reason = self.resolve(written[field.name].type, field.type)
                if reason is not None:
                    return f"field {reader.fullname}.{field.name}: {reason}"
        return None

    def _writer_union(self, writer: Any, reader: Any) -> str | None:
        for branch in writer.schemas:
            reason = self.resolve(branch, reader)
            if reason is not None:
                return reason
        return None

    def _reader_union(self, writer: Any, reader: Any) -> str | None:
        branch = self._branch(writer, reader)
        if branch is None:
            return f"no branch of the union takes {writer.type}"
        return self.resolve(writer, branch)

    def _branch(self, writer: Any, reader: Any) -> Any:
        """Returns the branch of the reader's union that accepts the writer's type, or None."""
        alike = None
        for branch in reader.schemas:
            if branch.type != writer.type:
                continue
            if writer.type not in _NAMED or self._name(writer) == branch.fullname:
                return branch
            better = alike is None or (branch.name == writer.name and alike.name != writer.name)
            if better and writer.type in _RECORDS and self._record(writer, branch) is None:
                alike = branch
        if alike is not None:
            return alike
        wanted = _PROMOTIONS.get(writer.type, ())
        return next((branch for branch in reader.schemas if branch.type in wanted), None)
