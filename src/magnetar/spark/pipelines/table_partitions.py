"""Partitions of tables by time, by hash bucket, or by the values of a column, for both formats.

The value of a partition is a number (years, months, days or hours since 1970; the number of a bucket), or the
value of the column itself. Bucket numbers are computed with Iceberg's hash function, for Delta as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["PartitionColumn", "PartitionValue", "parse_partitions", "split_by_partition"]

PartitionValue = str | int | bool | None

_FORM = re.compile(r"(?:(year|month|day|hour)\(([^(),]+)\)|bucket\(([0-9]+), *([^(),]+)\)|([^(),]+))")
_FORMS = "year(C), month(C), day(C), hour(C), bucket(N, C) or C, where C is a column"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_BUCKETS = 10_000


@dataclass(frozen=True)
class PartitionColumn:
    """One element of ``partition_by``."""

    column: str
    transform: str
    """How the partition value is computed from the column: ``year``, ``month``, ``day``, ``hour``, ``bucket``
    or ``identity``.
    """
    buckets: int = 0

    @staticmethod
    def parse(text: str) -> PartitionColumn:
        """Parses an element of ``partition_by``.

        :raises ValueError: the text is not an element of ``partition_by``
        """
        found = _FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"partition_by must have elements like {_FORMS}, not {text!r}")
        time, of_time, buckets, of_bucket, of_value = found.groups()
        if time:
            return PartitionColumn(of_time.strip(), time)
        if buckets is None:
            return PartitionColumn(of_value.strip(), "identity")
        if not 1 <= int(buckets) <= _MOST_BUCKETS:
            raise ValueError(f"partition_by: {text!r} must have 1 to {_MOST_BUCKETS:,} buckets")
        return PartitionColumn(of_bucket.strip(), "bucket", int(buckets))

    def __str__(self) -> str:
        if self.transform == "identity":
            return self.column
        return f"{self.transform}({f'{self.buckets}, ' if self.buckets else ''}{self.column})"

    @property
    def name(self) -> str:
        """The name of the partition column in the table."""
        return self.column if self.transform == "identity" else f"{self.column}_{self.transform}"

    def check(self, columns: pa.Schema) -> None:
        """Checks that the columns contain the column of this partition, with a type that fits the transform.

        :raises ValueError: there is no such column, or it has another type
        """
        place = columns.get_field_index(self.column)
        if place < 0:
            raise ValueError(f"partition_by: the table has no column {self.column!r}")
        kind = columns.field(place).type
        whole = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
        binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        fits = whole or pa.types.is_boolean(kind)
        if self.transform == "bucket":
            fits = whole or binary
        elif self.transform != "identity":
            fits = pa.types.is_timestamp(kind)
        if not fits:
            raise ValueError(f"partition_by: {self} does not fit the type {kind} of the column")

    def values(self, batch: pa.RecordBatch) -> pa.Array:
        """Returns the partition value of each row."""
        column = batch.column(batch.schema.get_field_index(self.column))
        if self.transform == "identity":
            return column
        if self.transform == "bucket":
            return self._buckets(column)
        years = pc.subtract(pc.year(column), 1970)
        if self.transform == "year":
            return years
        if self.transform == "month":
            return pc.subtract(pc.add(pc.multiply(years, 12), pc.month(column)), 1)
        micros = column.view(pa.int64())
        size = 3_600_000_000 if self.transform == "hour" else 86_400_000_000
        # Arrow rounds to zero; times before 1970 need the number below.
        rest = pc.subtract(micros, pc.multiply(pc.divide(micros, size), size))
        return pc.subtract(pc.divide(micros, size), pc.if_else(pc.less(rest, 0), 1, 0))

    def _buckets(self, column: pa.Array) -> pa.Array:
        from pyiceberg.transforms import BucketTransform
        from pyiceberg.types import BinaryType, LongType, StringType

        kind = column.type
        whole, text = pa.types.is_integer(kind), pa.types.is_string(kind) or pa.types.is_large_string(kind)
        bucket = BucketTransform(self.buckets).transform(
            LongType() if whole else StringType() if text else BinaryType()
        )
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        found = [bucket(each) for each in encoded.dictionary.to_pylist()]
        return pa.array(found, pa.int64()).take(encoded.indices)

    def delta_type(self, columns: pa.Schema) -> pa.DataType:
        """Returns the type of the Delta column that contains the partition value."""
        if self.transform == "identity":
            return columns.field(self.column).type
        return {"day": pa.date32(), "hour": pa.timestamp("us", "UTC"), "month": pa.string()}.get(
            self.transform, pa.int32()
        )

    def delta_text(self, value: PartitionValue) -> str | None:
        """Returns the partition value as a string, as Delta's log contains it; None for null."""
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()
        if self.transform == "year":
            return str(value + 1970)
        if self.transform == "month":
            return f"{value // 12 + 1970:04d}-{value % 12 + 1:02d}"
        if self.transform == "day":
            return (_EPOCH + timedelta(days=value)).date().isoformat()
        if self.transform == "hour":
            return (_EPOCH + timedelta(hours=value)).strftime("%Y-%m-%d %H:%M:%S")
        return str(value)

    def of_delta(self, value: object) -> PartitionValue:
        """Converts a value of the Delta partition column back to the partition value."""
        if isinstance(value, datetime):
            return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(hours=1)
        if isinstance(value, date):
            return (value - _EPOCH.date()).days
        if self.transform == "month" and isinstance(value, str):
            return (int(value[:-3]) - 1970) * 12 + int(value[-2:]) - 1
        if self.transform == "year" and isinstance(value, int):
            return value - 1970
        return value if isinstance(value, str | int | bool) else None


def parse_partitions(texts: Sequence[str]) -> tuple[PartitionColumn, ...]:
    """Parses ``partition_by``.

    :raises ValueError: an element is malformed, or two partitions have the same name
    """
    found = tuple(PartitionColumn.parse(each) for each in texts)
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"partition_by has {name} more than once")
    return found


def split_by_partition(
    batch: pa.RecordBatch, columns: Sequence[PartitionColumn]
) -> Iterator[tuple[tuple[PartitionValue, ...], pa.RecordBatch]]:
    """Yields the partition values and the rows of each partition."""
    if not columns:
        yield (), batch
        return
    places = [str(number) for number in range(len(columns))]
    values = pa.table([each.values(batch) for each in columns], names=places)
    distinct = values.group_by(places).aggregate([]).to_pylist()
    for one in distinct:
        key = tuple(one[place] for place in places)
        if len(distinct) == 1:
            yield key, batch
            return
        masks = [
            pc.is_null(values[place]) if one[place] is None else pc.equal(values[place], one[place])
            for place in places
        ]
        mask = masks[0]
        for each in masks[1:]:
            mask = pc.and_kleene(mask, each)
        yield key, batch.filter(pc.fill_null(mask, False).combine_chunks())
