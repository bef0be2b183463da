"""The requests to the schema registry, as they are counted."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol


class SchemaOperation(Enum):
    """The value is the operation's name in telemetry, as in Pulsar."""

    GET = "get"
    LIST = "list"
    PUT = "put"
    DELETE = "delete"


class Operations(Protocol):
    """Counts requests: :class:`magnetar.broker.flow.rates.SchemaOperations`."""

    def measured(self, operation: SchemaOperation, schema_id: str) -> AbstractContextManager[None]:
        """Measures one operation, which has failed if an exception leaves the context."""
        ...

    def compared(self, schema_id: str, *, compatible: bool) -> None:
        """Counts a comparison of a schema with earlier versions."""
        ...
