"""What was asked of the schema registry, by namespace: how long it took, and how it ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.broker.flow.rates import SECONDS_BOUNDS, Distribution
from magnetar.broker.schemas.operations import SchemaOperation
from magnetar.io.interfaces import Clock

MOST_NAMESPACES = 1000
"""Where more have schemas, the one that was asked about longest ago is forgotten, and begins anew."""


class OfNamespace:
    """Since the start."""

    __slots__ = ("compatible", "incompatible", "times")

    def __init__(self) -> None:
        self.times: dict[tuple[SchemaOperation, bool], Distribution] = {}
        """Of those that succeeded, and of those that failed."""
        self.compatible = 0
        """Schemas that were compared with those before them, and may follow."""
        self.incompatible = 0


class SchemaOperations:
    """Of one registry."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.known: OrderedDict[str, OfNamespace] = OrderedDict()

    @contextmanager
    def measured(self, operation: SchemaOperation, schema_id: str) -> Iterator[None]:
        """Around one; it failed when an exception leaves it."""
        started = self._clock.monotonic()
        succeeded = False
        try:
            yield
            succeeded = True
        finally:
            times = self._of(schema_id).times
            found = times.get((operation, succeeded))
            if found is None:
                found = times[operation, succeeded] = Distribution(SECONDS_BOUNDS)
            found.add(self._clock.monotonic() - started)

    def compared(self, schema_id: str, *, compatible: bool) -> None:
        """A schema was, with those before it."""
        found = self._of(schema_id)
        if compatible:
            found.compatible += 1
        else:
            found.incompatible += 1

    def _of(self, schema_id: str) -> OfNamespace:
        namespace = schema_id.rpartition("/")[0]
        found = self.known.get(namespace)
        if found is None:
            found = self.known[namespace] = OfNamespace()
            if len(self.known) > MOST_NAMESPACES:
                self.known.popitem(last=False)
        self.known.move_to_end(namespace)
        return found
