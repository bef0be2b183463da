"""Operations of the schema registry by namespace: durations and outcomes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from magnetar.broker.flow.rates import SECONDS_BOUNDS, Distribution
from magnetar.broker.schemas.operations import SchemaOperation
from magnetar.io.interfaces import Clock

MOST_NAMESPACES = 1000
"""With more namespaces than this, the one that was used longest ago is forgotten and starts from zero."""


class OfNamespace:
    """Counts of one namespace since the start."""

    __slots__ = ("compatible", "incompatible", "times")

    def __init__(self) -> None:
        self.times: dict[tuple[SchemaOperation, bool], Distribution] = {}
        """Durations by operation and success."""
        self.compatible = 0
        """Schemas that were found compatible with those before them."""
        self.incompatible = 0


class SchemaOperations:
    """Counts of one registry."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.known: OrderedDict[str, OfNamespace] = OrderedDict()

    @contextmanager
    def measured(self, operation: SchemaOperation, schema_id: str) -> Iterator[None]:
        """Measures one operation; it has failed if an exception leaves the block."""
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
        """Counts a comparison of a schema with those before it."""
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
