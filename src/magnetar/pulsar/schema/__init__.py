"""Schemas and records, as in ``pulsar.schema`` of the official client.

A record declares its fields as class attributes; a schema of it encodes values for producers and decodes
them for consumers::

    class Order(Record):
        number = Integer(required=True)
        customer = String()

    producer = client.create_producer("orders", schema=AvroSchema(Order))
    producer.send(Order(number=1, customer="a"))

The definitions that topics get are the same, byte for byte, as those of the official client.
"""

from __future__ import annotations

from magnetar.pulsar.schema.definition import ArrayField as Array
from magnetar.pulsar.schema.definition import AvroRecord as Record
from magnetar.pulsar.schema.definition import BooleanField as Boolean
from magnetar.pulsar.schema.definition import BytesField as Bytes
from magnetar.pulsar.schema.definition import CustomEnum
from magnetar.pulsar.schema.definition import DoubleField as Double
from magnetar.pulsar.schema.definition import FloatField as Float
from magnetar.pulsar.schema.definition import IntegerField as Integer
from magnetar.pulsar.schema.definition import LongField as Long
from magnetar.pulsar.schema.definition import MapField as Map
from magnetar.pulsar.schema.definition import NullField as Null
from magnetar.pulsar.schema.definition import RecordField as Field
from magnetar.pulsar.schema.definition import StringField as String
from magnetar.pulsar.schema.schema import BytesSchema, JsonSchema, Schema, StringSchema
from magnetar.pulsar.schema.schema_avro import AvroSchema
from magnetar.pulsar.schema.schema_protobuf import ProtobufNativeSchema

__all__ = [
    "Array",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "Long",
    "Map",
    "Null",
    "ProtobufNativeSchema",
    "Record",
    "Schema",
    "String",
    "StringSchema",
]
