"""What the schema registry is asked, as whoever counts it is told."""

from __future__ import annotations

from contextlib import AbstractContextManager
from enum import Enum
from typing import Protocol


class SchemaOperation(Enum):
    """The value is its name in telemetry, as Pulsar has it."""

    GET = "get"
    LIST = "list"
    PUT = "put"
    DELETE = "delete"


class Operations(Protocol):
    """Counts what was asked: :class:`magnetar.broker.flow.schema_operations.SchemaOperations`."""

    def measured(self, operation: SchemaOperation, schema_id: str) -> AbstractContextManager[None]:
        """Around one; it failed when an exception leaves it."""
        ...

    def compared(self, schema_id: str, *, compatible: bool) -> None:
        """A schema was, with those before it."""
        ...
