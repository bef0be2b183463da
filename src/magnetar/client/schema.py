"""What a producer declares about the contents of its messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from magnetar.protocol.pulsar_api_pb2 import Schema

__all__ = ["ProducerSchema"]

_TYPES: dict[str, Schema.Type] = {
    "STRING": Schema.String,
    "JSON": Schema.Json,
    "AVRO": Schema.Avro,
    "BOOLEAN": Schema.Bool,
    "INT8": Schema.Int8,
    "INT16": Schema.Int16,
    "INT32": Schema.Int32,
    "INT64": Schema.Int64,
    "FLOAT": Schema.Float,
    "DOUBLE": Schema.Double,
    "DATE": Schema.Date,
    "TIMESTAMP": Schema.Timestamp,
    "INSTANT": Schema.Instant,
    "LOCAL_DATE": Schema.LocalDate,
    "LOCAL_DATE_TIME": Schema.LocalDateTime,
}


@dataclass(frozen=True)
class ProducerSchema:
    """The broker adds it to the topic's versions, or refuses the producer; see docs/schemas.md."""

    kind: str
    """As the admin interface calls it, like ``AVRO`` or ``INT64``."""
    definition: str = ""
    """An Avro definition for AVRO and JSON; empty for others."""
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    def fill(self, schema: Schema) -> None:
        """Writes it into a command.

        :raises KeyError: there is no such kind here
        """
        schema.type = _TYPES[self.kind]
        schema.name = ""
        schema.schema_data = self.definition.encode()
        for key, value in self.properties.items():
            schema.properties.add(key=key, value=value)
