"""Schemas for values: producers accept values instead of bytes, and ``value()`` of a message returns the
value.

A record declares its fields as class attributes, as in ``pulsar.schema`` of the official client::

    class Order(Record):
        number = Integer(required=True)
        customer = String()

    producer = client.create_producer("orders", schema=AvroSchema(Order))
    producer.send(Order(number=1, customer="a"))
"""

from __future__ import annotations

from magnetar.client.schema import ValueSchema
from magnetar.client.schemas.records import ArrayField as Array
from magnetar.client.schemas.records import AvroRecord as Record
from magnetar.client.schemas.records import BooleanField as Boolean
from magnetar.client.schemas.records import BytesField as Bytes
from magnetar.client.schemas.records import CustomEnum
from magnetar.client.schemas.records import DoubleField as Double
from magnetar.client.schemas.records import FloatField as Float
from magnetar.client.schemas.records import IntegerField as Integer
from magnetar.client.schemas.records import LongField as Long
from magnetar.client.schemas.records import MapField as Map
from magnetar.client.schemas.records import NullField as Null
from magnetar.client.schemas.records import RecordField as Field
from magnetar.client.schemas.records import StringField as String
from magnetar.client.schemas.values import AvroValues as AvroSchema
from magnetar.client.schemas.values import JsonValues as JsonSchema
from magnetar.client.schemas.values import KeyValue
from magnetar.client.schemas.values import KeyValueValues as KeyValueSchema
from magnetar.client.schemas.values import PrimitiveValues as PrimitiveSchema
from magnetar.client.schemas.values import ProtobufValues as ProtobufNativeSchema

__all__ = [
    "Array",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "KeyValue",
    "KeyValueSchema",
    "Long",
    "Map",
    "Null",
    "PrimitiveSchema",
    "ProtobufNativeSchema",
    "Record",
    "String",
    "ValueSchema",
]


def _name_classes() -> None:
    """Renames the classes to the names in the official client, because error messages show these names."""
    for name in __all__:
        kind = globals()[name]
        if kind.__name__ != name:
            kind.__name__ = kind.__qualname__ = name
            kind.__module__ = __name__


_name_classes()
