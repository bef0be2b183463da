"""Whether one Avro definition can read data that another wrote, by the rules of Java's library.

Pulsar and its clients resolve schemas with that library or an equivalent library. The library is more lenient
than the specification: records need not have the same name, enums and fixed types need only the same simple
name, and a symbol that an enum lacks is an error only when a message contains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

from magnetar.broker.schemas import avro_definitions
from magnetar.broker.schemas.avro_definitions import AvroField, AvroType, InvalidDefinition, canonical
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
_NAMED = frozenset({"record", "enum", "fixed"})


def parse(schema: SchemaData) -> AvroType:
    """Returns the parsed Avro definition of a schema.

    :raises InvalidSchemaData: the definition is not an Avro schema, or has an invalid default
    """
    try:
        found = avro_definitions.parse(schema.definition)
        wrong = bad_default(found)
    except (InvalidDefinition, RecursionError) as error:
        raise InvalidSchemaData(f"Invalid schema definition data for {schema.type.name} schema") from error
    if wrong is not None:
        raise InvalidSchemaData(f"Invalid default for field {wrong} of {schema.type.name} schema")
    return found


def same(one: SchemaData, other: SchemaData) -> bool:
    """Whether two definitions have the same meaning, however they are written.

    Documentation, aliases and the defaults of enums do not count, as in Java's library.

    :raises InvalidSchemaData: one of the definitions is not an Avro schema, or is nested too deeply
    """
    if one.data == other.data:
        return True
    try:
        return _equal(parse(one), parse(other), set())
    except RecursionError as error:
        raise InvalidSchemaData(f"{one.type.name} schema is nested too deeply") from error


def _equal(one: AvroType, other: AvroType, seen: set[tuple[int, int]]) -> bool:
    """Whether two types have the same meaning.

    :param seen: pairs of records whose comparison has begun
    """
    parts = (one.kind, one.name, one.size, one.symbols, one.properties, len(one.branches), len(one.fields))
    if parts != (
        other.kind,
        other.name,
        other.size,
        other.symbols,
        other.properties,
        len(other.branches),
        len(other.fields),
    ):
        return False
    if (id(one), id(other)) in seen:
        return True
    if one.kind == "record":
        seen.add((id(one), id(other)))
    return all(
        _equal(branch, its, seen) for branch, its in zip(one.branches, other.branches, strict=True)
    ) and all(_equal_fields(field, its, seen) for field, its in zip(one.fields, other.fields, strict=True))


def _equal_fields(one: AvroField, other: AvroField, seen: set[tuple[int, int]]) -> bool:
    return (
        (one.name, one.order, one.properties, one.has_default)
        == (other.name, other.order, other.properties, other.has_default)
        and (not one.has_default or canonical(one.default) == canonical(other.default))
        and _equal(one.type, other.type, seen)
    )


def check(before: Sequence[SchemaData], new: SchemaData, strategy: str) -> None:
    """Checks that a definition is compatible with earlier versions.

    :param before: the versions with which ``new`` must be compatible
    :raises IncompatibleSchema: ``strategy`` does not allow ``new`` after these versions
    """
    if strategy == "ALWAYS_COMPATIBLE":
        return
    try:
        _check(before, new, strategy)
    except RecursionError as error:
        raise InvalidSchemaData(f"{new.type.name} schema is nested too deeply") from error


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


def why_not(writer: AvroType, reader: AvroType) -> str | None:
    """Returns the reason why data of ``writer`` cannot be read with ``reader``; None if it can be read.

    Each pair of records is compared once, so that the comparison of recursive records ends.
    """
    try:
        if not _equal(writer, reader, set()):
            writer = _AliasedNames(reader).renamed(writer)
    except InvalidDefinition as error:
        return f"with the aliases of the reader applied, {error}"
    found = _Resolution().resolve(writer, reader)
    return None if found is None else found.reason


def valid_default(schema: AvroType, value: object) -> bool:
    """Whether a JSON value is a valid default of a field with that schema."""
    kind = schema.kind
    if kind == "union":
        return any(valid_default(branch, value) for branch in schema.branches)
    if kind == "array":
        return isinstance(value, list) and all(valid_default(schema.content, item) for item in value)
    if kind == "map":
        return isinstance(value, dict) and all(valid_default(schema.content, item) for item in value.values())
    if kind == "record":
        return isinstance(value, dict) and all(
            valid_default(field.type, value[field.name]) if field.name in value else field.has_default
            for field in schema.fields
        )
    return _valid_plain(kind, value)


def _valid_plain(kind: str, value: object) -> bool:
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


def bad_default(schema: AvroType) -> str | None:
    """Returns ``record.field``, a field whose default does not fit its type; None if all defaults fit."""
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        current = waiting.pop()
        waiting.extend(current.branches)
        if id(current) not in seen:
            seen.add(id(current))
            for field in current.fields:
                if field.has_default and not valid_default(field.type, field.default):
                    return f"{current.name}.{field.name}"
                waiting.append(field.type)
    return None


class _AliasedNames:
    """The aliases in a reader's schema: they map names in the writer's schema to names of the reader."""

    def __init__(self, reader: AvroType) -> None:
        self._names: dict[str, str] = {}
        self._fields: dict[str, dict[str, str]] = {}
        self._renamed: dict[int, AvroType] = {}
        self._collect(reader, set())

    def _collect(self, schema: AvroType, seen: set[int]) -> None:
        for branch in schema.branches:
            self._collect(branch, seen)
        if schema.kind not in _NAMED or id(schema) in seen:
            return
        seen.add(id(schema))
        self._names.update((alias, schema.name) for alias in schema.aliases)
        for field in schema.fields:
            for alias in field.aliases:
                self._fields.setdefault(schema.name, {})[alias] = field.name
            self._collect(field.type, seen)

    def renamed(self, writer: AvroType) -> AvroType:
        """Returns the writer's schema with the reader's names.

        :raises InvalidDefinition: two fields of a record, or two branches of a union, get the same name
        """
        return self._rename(writer) if self._names or self._fields else writer

    def _rename(self, writer: AvroType) -> AvroType:
        if id(writer) in self._renamed:
            return self._renamed[id(writer)]
        branches = [self._rename(branch) for branch in writer.branches]
        if writer.kind == "union":
            return avro_definitions.union(branches)
        name = self._names.get(writer.name, writer.name)
        found = AvroType(writer.kind, name, symbols=writer.symbols, size=writer.size, branches=branches)
        if writer.kind == "record":
            # Its fields may refer to it.
            self._renamed[id(writer)] = found
            names = self._fields.get(name, {})
            found.fields = [
                AvroField(names.get(field.name, field.name), self._rename(field.type), field.default)
                for field in writer.fields
            ]
            avro_definitions.check_fields(name, found.fields)
        return found


class _Mismatch(NamedTuple):
    """The reason why a type cannot be read as another."""

    reason: str
    depth: int
    """How deep the mismatch is: 0: the types themselves do not match; 1: the types of a field of these
    records do not match; 2: types inside the types of a field do not match."""


class _Resolution:
    """One comparison of a writer's type with a reader's type."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], _Mismatch | None] = {}

    def resolve(self, writer: AvroType, reader: AvroType) -> _Mismatch | None:
        """Returns the reason why the reader cannot read the writer's data; None if the reader can."""
        if writer.kind == "union":
            return self._writer_union(writer, reader)
        if writer.kind == reader.kind:
            return self._same_kind(writer, reader)
        if reader.kind == "union":
            branch = self._branch(writer, reader)
            if branch is None:
                return _Mismatch(f"no branch of the union takes {writer.kind}", 0)
            return _within(self.resolve(writer, branch))
        if reader.kind in _PROMOTIONS.get(writer.kind, ()):
            return None
        return _Mismatch(f"{writer.kind} cannot be read as {reader.kind}", 0)

    def _same_kind(self, writer: AvroType, reader: AvroType) -> _Mismatch | None:
        kind = writer.kind
        if kind == "record":
            return self._record(writer, reader)
        if kind in ("array", "map"):
            return _within(self.resolve(writer.content, reader.content))
        if writer.simple_name != reader.simple_name:
            return _Mismatch(f"{kind} {writer.name} is not {reader.name}", 0)
        if writer.size != reader.size:
            return _Mismatch(f"fixed {writer.name} has {writer.size} bytes, not {reader.size}", 0)
        return None

    def _record(self, writer: AvroType, reader: AvroType) -> _Mismatch | None:
        pair = (id(writer), id(reader))
        if pair in self._seen:
            return self._seen[pair]
        self._seen[pair] = None
        self._seen[pair] = found = self._compare_fields(writer, reader)
        return found

    def _compare_fields(self, writer: AvroType, reader: AvroType) -> _Mismatch | None:
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            if field.name not in written and not field.has_default:
                return _Mismatch(f"field {reader.name}.{field.name} is not written, and has no default", 0)
        found: _Mismatch | None = None
        for field in reader.fields:
            if field.name in written:
                mismatch = self.resolve(written[field.name].type, field.type)
                if mismatch is not None:
                    depth = 1 if mismatch.depth == 0 else 2
                    if found is None or depth < found.depth:
                        found = _Mismatch(f"field {reader.name}.{field.name}: {mismatch.reason}", depth)
        return found

    def _writer_union(self, writer: AvroType, reader: AvroType) -> _Mismatch | None:
        # Unions that are alike are compared branch by branch.
        readers = reader.branches if _alike(writer, reader, {}) else repeat(reader)
        for branch, its in zip(writer.branches, readers, strict=False):
            mismatch = self.resolve(branch, its)
            if mismatch is not None:
                return _within(mismatch)
        return None

    def _branch(self, writer: AvroType, reader: AvroType) -> AvroType | None:
        """Returns the branch of the reader's union that accepts the writer's type; None if no branch does."""
        similar = None
        for branch in reader.branches:
            if branch.kind != writer.kind:
                continue
            if writer.name == branch.name:
                return branch
            better = similar is None or branch.simple_name == writer.simple_name
            if better and writer.kind == "record" and self._fits_roughly(writer, branch):
                similar = branch
        if similar is not None:
            return similar
        wanted = _PROMOTIONS.get(writer.kind, ())
        return next((branch for branch in reader.branches if branch.kind in wanted), None)

    def _fits_roughly(self, writer: AvroType, reader: AvroType) -> bool:
        """Whether two types match if the types of fields are ignored; Java's library uses this to choose a
        record in a union."""
        mismatch = self._record(writer, reader)
        return mismatch is None or mismatch.depth == 2


def _within(mismatch: _Mismatch | None) -> _Mismatch | None:
    return None if mismatch is None else _Mismatch(mismatch.reason, 2)


def _alike(one: AvroType, other: AvroType, seen: dict[tuple[int, int], bool]) -> bool:
    """Whether two types have the same form: simple names, symbols, fields and branches in order."""
    pair = (id(one), id(other))
    if pair in seen:
        return seen[pair]
    parts = (one.kind, one.simple_name, one.size, one.symbols, [field.name for field in one.fields])
    if parts != (
        other.kind,
        other.simple_name,
        other.size,
        other.symbols,
        [field.name for field in other.fields],
    ) or len(one.branches) != len(other.branches):
        return False
    seen[pair] = True
    parts_of_one = [*one.branches, *(field.type for field in one.fields)]
    parts_of_other = [*other.branches, *(field.type for field in other.fields)]
    seen[pair] = all(_alike(part, its, seen) for part, its in zip(parts_of_one, parts_of_other, strict=True))
    return seen[pair]
