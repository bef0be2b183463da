"""Avro definitions, parsed by the rules of Java's library (Avro 1.11), which Pulsar and its clients use.

These rules differ from the specification. Names may contain letters of all languages; namespaces may contain
any characters; and a text is a valid default of a floating-point number if Java can parse it as a number.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NoReturn

from magnetar.lazy_dataclass import dataclass

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = frozenset({"record", "error", "enum", "fixed"})
_ORDERS = frozenset({"ASCENDING", "DESCENDING", "IGNORE"})
_RESERVED = frozenset(
    {"aliases", "doc", "fields", "items", "name", "namespace", "size", "symbols", "type", "values"}
)
_RESERVED_OF_FIELDS = frozenset({"aliases", "default", "doc", "name", "order", "type"})
_MAX_FIXED = (1 << 31) - 9
"""The maximum size of a ``fixed`` type, because Java's library cannot allocate a larger array."""
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"|/\*.*?\*/|//[^\n]*', re.DOTALL)
_JAVA_NUMBER = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)[fFdD]?")
_JAVA_SPACE = "".join(map(chr, range(33)))


class InvalidDefinition(ValueError):
    """A text is not an Avro definition."""


class _Missing:
    """The class of :data:`MISSING`, which stands for the default of a field without a default."""


MISSING = _Missing()


@dataclass(slots=True)
class AvroType:
    """An Avro type. Only the attributes that apply to its :attr:`kind` are set."""

    kind: str
    """A primitive type, ``record`` (errors too), ``enum``, ``fixed``, ``array``, ``map`` or ``union``."""
    name: str = ""
    """The full name of a record, an enum or a ``fixed``; otherwise empty."""
    fields: Sequence[AvroField] = ()
    symbols: Sequence[str] = ()
    size: int = 0
    """The size of a ``fixed`` type, in bytes."""
    branches: Sequence[AvroType] = ()
    """The types of a union; for an array or a map, the one type of its items or values."""
    aliases: Sequence[str] = ()
    """The full names of the aliases."""
    properties: str = ""
    """The properties that Avro does not define, as JSON in an order that does not depend on the text."""

    @property
    def simple_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def content(self) -> AvroType:
        """The type of an array's items or a map's values."""
        return self.branches[0]


@dataclass(slots=True)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: object = MISSING
    """The default as a JSON value; ``MISSING``: the field has no default."""
    order: str = "ASCENDING"
    aliases: Sequence[str] = ()
    properties: str = ""

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING


def parse(text: str) -> AvroType:
    """Returns the type that a text defines.

    :raises InvalidDefinition: Java's library does not accept the text
    :raises RecursionError: the text is nested too deeply
    """
    try:
        return _DefinitionParser().parse(_read(text))
    except InvalidDefinition:
        raise
    except ValueError as error:
        raise InvalidDefinition(f"not JSON: {error}") from error


def _read(text: str) -> object:
    """Reads JSON as Java's library does: comments are allowed, except after the last token."""
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    plain = _TOKENS.sub(_without_comment, text) if "/" in text else text
    begin = len(plain) - len(plain.lstrip(" \t\r\n"))
    found, end = decoder.raw_decode(plain, begin)
    if text[end:].strip(_JAVA_SPACE):
        raise InvalidDefinition(f"unexpected text after the definition: {text[end : end + 20]!r}")
    return found


def _without_comment(token: re.Match[str]) -> str:
    return token[0] if token[0].startswith('"') else " " * len(token[0])


def _no_constant(name: str) -> NoReturn:
    raise InvalidDefinition(f"{name} is not a JSON number")


def canonical(value: object) -> str:
    """Returns a canonical text, which is the same for two JSON values that Java's library treats as equal."""
    return json.dumps(value, sort_keys=True)


def _properties(node: Mapping[str, object], reserved: frozenset[str]) -> str:
    found = {key: value for key, value in node.items() if key not in reserved}
    return canonical(found) if found else ""


def _text(node: object, key: str, what: str) -> str:
    found = node.get(key) if isinstance(node, dict) else None
    if not isinstance(found, str):
        raise InvalidDefinition(f"{what} needs the attribute {key}, a string")
    return found


def _check_name(name: str) -> str:
    """Checks a name and returns it. Letters above U+FFFF are invalid, because Java checks UTF-16 units.

    :raises InvalidDefinition: the name is not valid
    """
    fits = all(_is_letter(each) or each.isdecimal() for each in name)
    if not fits or not name or name[0].isdecimal():
        raise InvalidDefinition(f"{name!r} is not a valid name")
    return name


def _is_letter(character: str) -> bool:
    return character == "_" or (character.isalpha() and character <= "\uffff")


def _full_name(name: str, space: str) -> str:
    """Returns the full name of a type.

    :param space: the namespace of the type if ``name`` does not contain one; empty: no namespace
    """
    before, dot, simple = name.rpartition(".")
    _check_name(simple)
    if dot:
        space = before
    return f"{space}.{simple}" if space else simple


def _aliases(node: Mapping[str, object]) -> list[str]:
    found = node.get("aliases", [])
    if not isinstance(found, list):
        raise InvalidDefinition(f"aliases must be an array, not {found!r:.80}")
    return [_alias(each) for each in found]


def _alias(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidDefinition(f"the alias {value!r} is not text")
    return value


def union(branches: Sequence[AvroType]) -> AvroType:
    """Returns the union of these types.

    :raises InvalidDefinition: a branch is a union, or two branches have the same type or name
    """
    seen = set()
    for branch in branches:
        name = branch.name or branch.kind
        if branch.kind == "union":
            raise InvalidDefinition("a union directly contains a union")
        if name in seen:
            raise InvalidDefinition(f"a union contains {name} twice")
        seen.add(name)
    return AvroType("union", branches=branches)


def check_fields(record: str, fields: Sequence[AvroField]) -> None:
    """Checks that the names of fields are unique.

    :raises InvalidDefinition: two fields of ``record`` have the same name
    """
    seen = set()
    for each in fields:
        if each.name in seen:
            raise InvalidDefinition(f"the record {record} has two fields named {each.name}")
        seen.add(each.name)


class _DefinitionParser:
    """Parses one definition, and remembers the named types that it has defined so far."""

    def __init__(self) -> None:
        self._defined: dict[str, AvroType] = {}
        self._space = ""

    def parse(self, node: object) -> AvroType:
        if isinstance(node, str):
            return self._referred(node)
        if isinstance(node, list):
            return union([self.parse(branch) for branch in node])
        if isinstance(node, dict):
            return self._object(node)
        raise InvalidDefinition(f"{node!r} is not a type")

    def _referred(self, name: str) -> AvroType:
        if name in _PRIMITIVES:
            return AvroType(name)
        full = _full_name(name, self._space)
        # A name that its namespace does not have is looked up without a namespace.
        found = self._defined.get(full) or self._defined.get(full.rpartition(".")[2])
        if found is None:
            raise InvalidDefinition(f"the type {name!r} is not defined")
        return found

    def _object(self, node: dict[str, object]) -> AvroType:
        kind = _text(node, "type", "a definition")
        if kind in _NAMED:
            return self._named(kind, node)
        if kind in _PRIMITIVES:
            found = AvroType(kind)
        elif kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in node:
                raise InvalidDefinition(f"{kind} needs the attribute {key}")
            found = AvroType(kind, branches=[self.parse(node[key])])
        elif (full := _full_name(kind, self._space)) in self._defined:
            return self._defined[full]
        else:
            raise InvalidDefinition(f"{kind!r} is not a type")
        found.properties = _properties(node, _RESERVED)
        return found

    def _named(self, kind: str, node: dict[str, object]) -> AvroType:
        outer, given = self._space, node.get("namespace")
        name = _full_name(_text(node, "name", kind), given if isinstance(given, str) else outer)
        if name in _PRIMITIVES:
            raise InvalidDefinition(f"{name!r} is the name of a primitive type")
        self._space = name.rpartition(".")[0]
        reserved = _RESERVED
        if kind == "enum":
            found = self._define(AvroType(kind, name, symbols=_symbols(node)))
            reserved |= {"default"}
        elif kind == "fixed":
            found = self._define(AvroType(kind, name, size=_size(node)))
        else:
            # Its fields may refer to it.
            found = self._define(AvroType("record", name))
            found.fields = list(self._fields(node))
            check_fields(name, found.fields)
        found.properties = _properties(node, reserved)
        found.aliases = [_full_name(alias, self._space) for alias in _aliases(node)]
        self._space = outer
        return found

    def _define(self, definition: AvroType) -> AvroType:
        if definition.name in self._defined:
            raise InvalidDefinition(f"{definition.name} is defined twice")
        self._defined[definition.name] = definition
        return definition

    def _fields(self, record: Mapping[str, object]) -> Iterator[AvroField]:
        nodes = record.get("fields")
        if not isinstance(nodes, list):
            raise InvalidDefinition("a record needs an attribute named 'fields', which must be an array")
        for node in nodes:
            yield self._field(_text(node, "name", "a field"), node)

    def _field(self, name: str, node: Mapping[str, object]) -> AvroField:
        if "type" not in node:
            raise InvalidDefinition(f"field {name} needs the attribute type")
        kind = self.parse(node["type"])
        order = _text(node, "order", f"field {name}").upper() if "order" in node else "ASCENDING"
        if order not in _ORDERS:
            raise InvalidDefinition(f"field {name} cannot have the order {order}")
        default = node.get("default", MISSING)
        if kind.kind in ("float", "double") and isinstance(default, str):
            default = _number(default)
        properties = _properties(node, _RESERVED_OF_FIELDS)
        return AvroField(_check_name(name), kind, default, order, _aliases(node), properties)


def _symbols(node: Mapping[str, object]) -> list[str]:
    symbols, default = node.get("symbols"), node.get("default")
    if not isinstance(symbols, list):
        raise InvalidDefinition("an enum needs the attribute symbols, an array")
    found = [_check_name(each) for each in symbols if isinstance(each, str)]
    if len(found) < len(symbols) or len(set(found)) < len(found):
        raise InvalidDefinition(f"the symbols of an enum must be different strings, not {symbols!r}")
    if isinstance(default, str) and default not in found:
        raise InvalidDefinition(f"the default {default!r} of an enum is not a symbol")
    return found


def _size(node: Mapping[str, object]) -> int:
    size = node.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= _MAX_FIXED:
        raise InvalidDefinition(f"the size {size!r} of a fixed type is not a number from 0 to {_MAX_FIXED}")
    return size


def _number(text: str) -> float | str:
    """Returns the number in a text; if the text is not a number, returns the text, an invalid default."""
    plain = text.strip(_JAVA_SPACE)
    return float(plain.rstrip("fFdD")) if _JAVA_NUMBER.fullmatch(plain) else text
