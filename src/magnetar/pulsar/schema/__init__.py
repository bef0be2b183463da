"""Schemas and records, as in ``pulsar.schema`` of the official client.

A record declares its fields as class attributes. A schema of the record encodes values for producers and
decodes them for consumers::

    class Order(Record):
        number = Integer(required=True)
        customer = String()

    producer = client.create_producer("orders", schema=AvroSchema(Order))
    producer.send(Order(number=1, customer="a"))

The definitions that topics get are the same, byte for byte, as those of the official client.
"""

from __future__ import annotations

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
from magnetar.pulsar.schema.schema import BytesSchema, JsonSchema, ProtobufNativeSchema, Schema, StringSchema
from magnetar.pulsar.schema.schema_avro import AvroSchema

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
