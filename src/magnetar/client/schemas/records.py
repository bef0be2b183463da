"""Records and their fields; their Avro definitions are byte for byte the same as in the official client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, EnumMeta

__all__ = [
    "ArrayField",
    "AvroRecord",
    "BooleanField",
    "BytesField",
    "CustomEnum",
    "DoubleField",
    "FloatField",
    "IntegerField",
    "LongField",
    "MapField",
    "NullField",
    "RecordField",
    "RecordMeta",
    "StringField",
]
Class = type
Definition = dict[str, object]
_OWN = ("_default", "_required", "_required_default")
"""The attributes of record objects that are not fields of the record."""


def _text(kind: object) -> str:
    return str(getattr(kind, "__name__", kind))


class RecordField:
    """A field of a record, or the type of an array's items or a map's values."""

    def __init__(
        self, default: object = None, required: bool = False, required_default: bool = False
    ) -> None:
        """:param default: the value that the field has if the program does not set it

        :param required: whether the field must not be None
        :param required_default: whether the definition contains the default
        :raises TypeError: the default has the wrong type
        """
        if default is not None:
            default = self.validate_type("default", default)
        self._default = default
        self._required_default = required_default
        self._required = required

    def type(self) -> str:
        """The name of the Avro type."""
        raise NotImplementedError

    def python_type(self) -> Class | tuple[Class, ...]:
        raise NotImplementedError

    def validate_type(self, name: str, val: object) -> object:
        """Checks a value for the field, and returns the value to store.

        :param name: the name of the field, for errors
        :raises TypeError: the value has the wrong type
        """
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, self.python_type()):
            raise TypeError(
                f"Invalid type '{type(val)}' for field '{name}'. Expected: {_text(self.python_type())}"
            )
        return val

    def schema(self) -> object:
        """The Avro definition of the field's type."""
        return self.schema_info(set())

    def schema_info(self, defined_names: set[str]) -> object:
        """Like :meth:`schema`, but writes only the name of a type that is already defined.

        :param defined_names: names of the types that are already defined; the method adds the names of types
            that it defines
        """
        return self.type()

    def _item_info(self, defined_names: set[str]) -> object:
        """Returns the definition that is used if this field is the type of an array's items or of a map's
        values.
        """
        return self.type()

    def default(self) -> object:
        return self._default

    def required_default(self) -> bool:
        return self._required_default


class RecordMeta(type):
    """Collects the fields of a record class."""

    _fields: dict[str, RecordField | AvroRecord]

    def __new__(metacls, name: str, parents: tuple[type, ...], members: dict[str, object]) -> RecordMeta:
        if parents:
            members["_fields"] = RecordMeta._get_fields(members)
            members["_required"] = False
        return super().__new__(metacls, name, parents, members)

    @staticmethod
    def _get_fields(members: Mapping[str, object]) -> dict[str, RecordField | AvroRecord]:
        fields: dict[str, RecordField | AvroRecord] = {}
        for name, value in members.items():
            if isinstance(value, EnumMeta):
                value = CustomEnum(value)
            elif isinstance(value, RecordMeta):
                value = value()
            if isinstance(value, RecordField | AvroRecord):
                fields[name] = value
        return fields


class AvroRecord(metaclass=RecordMeta):
    """Base class of records; subclasses declare their fields as class attributes."""

    _avro_namespace: str | None = None
    _sorted_fields = False
    _required = False
    _fields: dict[str, RecordField | AvroRecord] = {}  # noqa: RUF012 - set by the metaclass

    def __init__(
        self,
        default: object = None,
        required_default: bool = False,
        required: bool = False,
        *args: object,
        **kwargs: object,
    ) -> None:
        """:param kwargs: values of the fields by name; for a field that is a record, a mapping is accepted

        :raises TypeError: a value has the wrong type
        """
        self._required_default = required_default
        self._default = default
        self._required = required
        for name, field in self._fields.items():
            if name in kwargs:
                setattr(self, name, _with_records(field, kwargs[name]))
            elif isinstance(field, AvroRecord):
                setattr(self, name, field)
            else:
                super().__setattr__(name, field.default())

    def _made(self, values: Mapping[str, object]) -> AvroRecord:
        """Returns a record of the same class with other values."""
        make: Callable[..., AvroRecord] = self.__class__
        return make(**values)

    @classmethod
    def schema(cls) -> object:
        """The Avro definition of the record."""
        return cls.schema_info(set())

    @classmethod
    def schema_info(cls, defined_names: set[str]) -> object:
        """Like :meth:`schema`, but writes only the name of a type that is already defined.

        :param defined_names: names of the types that are already defined; the method adds the names of types
            that it defines
        """
        namespace = cls._avro_namespace
        full_name = f"{namespace}.{cls.__name__}" if namespace is not None else cls.__name__
        if full_name in defined_names:
            return full_name
        defined_names.add(full_name)
        definition: Definition = {"type": "record", "name": cls.__name__}
        if namespace is not None:
            definition["namespace"] = namespace
        names = sorted(cls._fields) if cls._sorted_fields else list(cls._fields)
        definition["fields"] = [cls._field_info(name, defined_names) for name in names]
        return definition

    @classmethod
    def _field_info(cls, name: str, defined_names: set[str]) -> Definition:
        field = cls._fields[name]
        info: Definition = {"name": name}
        if field.required_default():
            default = field.default()
            info["default"] = default.name if isinstance(default, Enum) else default
        kind = field.schema_info(defined_names)
        info["type"] = kind if field._required else ["null", kind]
        return info

    def _item_info(self, defined_names: set[str]) -> object:
        """See :meth:`RecordField._item_info`."""
        return self.schema_info(defined_names)

    def __setattr__(self, key: str, value: object) -> None:
        if key not in _OWN:
            if key not in self._fields:
                raise AttributeError(f"Cannot set undeclared field {key} on record")
            value = self._fields[key].validate_type(key, value)
        super().__setattr__(key, value)

    def __eq__(self, other: object) -> bool:
        return all(
            hasattr(other, field) and getattr(self, field) == getattr(other, field) for field in self._fields
        )

    def __str__(self) -> str:
        return str(self.__dict__)

    def type(self) -> str:
        return type(self).__name__

    def python_type(self) -> Class:
        return type(self)

    def validate_type(self, name: str, val: object) -> object:
        """See :meth:`RecordField.validate_type`.

        :raises TypeError: the value is not a record of this class
        """
        if val is None and not self._required:
            return self.default()
        if not isinstance(val, type(self)):
            raise TypeError(
                f"Invalid type '{type(val)}' for sub-record field '{name}'. Expected: {_text(type(self))}"
            )
        return val

    def default(self) -> object:
        return self._default

    def required_default(self) -> bool:
        return self._required_default


def _with_records(field: RecordField | AvroRecord, value: object) -> object:
    """Returns the value with mappings converted to records, where the type of the field requires records."""
    if isinstance(field, AvroRecord) and isinstance(value, dict):
        return field._made(value)
    if isinstance(field, ArrayField) and isinstance(value, list):
        item = field.array_type
        if isinstance(item, AvroRecord) and value and isinstance(value[0], dict):
            return [item._made(each) for each in value]
    if isinstance(field, MapField) and isinstance(value, dict):
        item = field.value_type
        if isinstance(item, AvroRecord) and value and isinstance(next(iter(value.values())), dict):
            return {key: item._made(each) for key, each in value.items()}
    return value


class NullField(RecordField):
    def type(self) -> str:
        return "null"

    def python_type(self) -> Class:
        return type(None)

    def validate_type(self, name: str, val: object) -> object:
        if val is not None:
            raise TypeError(f"Field {name} is set to be None")
        return val


class BooleanField(RecordField):
    def type(self) -> str:
        return "boolean"

    def python_type(self) -> Class:
        return bool

    def default(self) -> object:
        return self._default if self._default is not None else False


class IntegerField(RecordField):
    def type(self) -> str:
        return "int"

    def python_type(self) -> Class:
        return int


class LongField(RecordField):
    def type(self) -> str:
        return "long"

    def python_type(self) -> Class:
        return int


class FloatField(RecordField):
    def type(self) -> str:
        return "float"

    def python_type(self) -> tuple[Class, ...]:
        return (float, int)


class DoubleField(RecordField):
    def type(self) -> str:
        return "double"

    def python_type(self) -> tuple[Class, ...]:
        return (float, int)


class BytesField(RecordField):
    def type(self) -> str:
        return "bytes"

    def python_type(self) -> tuple[Class, ...]:
        return (bytes, str)

    def validate_type(self, name: str, val: object) -> object:
        return val.encode() if isinstance(val, str) else val


class StringField(RecordField):
    def type(self) -> str:
        return "string"

    def python_type(self) -> tuple[Class, ...]:
        return (str, bytes)

    def validate_type(self, name: str, val: object) -> object:
        if val is None and not self._required:
            return self.default()
        if isinstance(val, bytes):
            return val.decode()
        if not isinstance(val, str):
            raise TypeError(f"Invalid type '{type(val)}' for field '{name}'. Expected a string")
        return val


class CustomEnum(RecordField):
    """A field whose values are the members of an enumeration."""

    def __init__(
        self,
        enum_type: EnumMeta,
        default: object = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        """:raises Exception: ``enum_type`` is not an enumeration"""
        if not issubclass(enum_type, Enum):
            raise Exception(f"{_text(enum_type)} is not a valid Enum type")
        self.enum_type: type[Enum] = enum_type
        self.values = {member.value: member for member in enum_type.__members__.values()}
        super().__init__(default, required, required_default)

    def type(self) -> str:
        return "enum"

    def python_type(self) -> Class:
        return self.enum_type

    def validate_type(self, name: str, val: object) -> object:
        """Returns the member of the enumeration for a member, a name or a number."""
        members = self.enum_type.__members__
        if type(val) is str:
            if val not in members:
                raise _bad_member(val, name, members.keys())
            return members[val]
        if type(val) is int:
            if val not in self.values:
                raise _bad_member(val, name, self.values.keys())
            return self.values[val]
        if val is not None and not isinstance(val, self.enum_type):
            raise TypeError(
                f"Invalid type '{type(val)}' for field '{name}'. Expected: {_text(self.enum_type)}"
            )
        return val

    def schema_info(self, defined_names: set[str]) -> object:
        name = self.enum_type.__name__
        if name in defined_names:
            return name
        defined_names.add(name)
        return {"type": self.type(), "name": name, "symbols": [member.name for member in self.enum_type]}


def _bad_member(val: object, name: str, expected: object) -> TypeError:
    return TypeError(f"Invalid enum value '{val}' for field '{name}'. Expected: {expected}")


def _checked_item(item: RecordField | AvroRecord) -> RecordField | AvroRecord:
    """Checks that the type of an array's items or a map's values is a record or a field, and returns it.

    :raises Exception: the item is neither a record nor a field
    """
    if isinstance(item, type) and not issubclass(item, AvroRecord):
        raise Exception(f"Argument {_text(item)} is not a Record or a Field")
    return item


class ArrayField(RecordField):
    def __init__(
        self,
        array_type: RecordField | AvroRecord,
        default: object = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        """:param array_type: the type of the items"""
        self.array_type = _checked_item(array_type)
        super().__init__(default=default, required=required, required_default=required_default)

    def type(self) -> str:
        return "array"

    def python_type(self) -> Class:
        return list

    def validate_type(self, name: str, val: object) -> object:
        if val is None:
            return None
        super().validate_type(name, val)
        items = val if isinstance(val, list) else []
        _check_items(
            items, self.array_type, f"Array field {name} items should all be", self.array_type.type()
        )
        return val

    def schema_info(self, defined_names: set[str]) -> object:
        return {"type": self.type(), "items": self.array_type._item_info(defined_names)}

    def _item_info(self, defined_names: set[str]) -> object:
        return self.schema_info(defined_names)


class MapField(RecordField):
    def __init__(
        self,
        value_type: RecordField | AvroRecord,
        default: object = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        """:param value_type: the type of the values; keys are strings"""
        self.value_type = _checked_item(value_type)
        super().__init__(default=default, required=required, required_default=required_default)

    def type(self) -> str:
        return "map"

    def python_type(self) -> Class:
        return dict

    def validate_type(self, name: str, val: object) -> object:
        if val is None:
            return None
        super().validate_type(name, val)
        entries = val if isinstance(val, dict) else {}
        if not all(type(key) is str for key in entries):
            raise TypeError(f"Map keys for field {name}  should all be strings")
        expected = self.value_type.python_type()
        refusal = f"Map values for field {name} should all be"
        _check_items(list(entries.values()), self.value_type, refusal, expected)
        return val

    def schema_info(self, defined_names: set[str]) -> object:
        return {"type": self.type(), "values": self.value_type._item_info(defined_names)}

    def _item_info(self, defined_names: set[str]) -> object:
        return self.schema_info(defined_names)


def _check_items(items: list[object], kind: RecordField | AvroRecord, refusal: str, expected: object) -> None:
    python_type = kind.python_type()
    for item in items:
        if not isinstance(item, python_type):
            raise TypeError(f"{refusal} of type {_text(expected)}")
