"""The columns of tables: how they change with the schema of a topic, and how rows with older schemas are
converted.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from magnetar.spark.codec.columns import VALUE
from magnetar.spark.codec.schemas import KEY, TIMES, Definition, columns_of

__all__ = ["ColumnError", "columns_in", "conformed", "merged_columns"]

Promotions = Collection[tuple[pa.DataType, pa.DataType]]
"""Pairs of types: a column of the first type can be changed to the second."""


class ColumnError(Exception):
    """A column cannot be changed to the schema's type; the text contains the field and both types."""


def columns_in(definition: Definition) -> pa.Schema:
    """Returns the columns of a table for a schema: the columns of ``format("pulsar")``, but with time types
    for times of day.

    :raises SparkSourceError: the schema is not supported; the error text has the reason
    """
    columns = to_arrow_schema(columns_of(definition), timezone="UTC")
    for name, part in ((VALUE, definition), (VALUE, definition.value), (KEY, definition.key)):
        if part is not None and part.kind in TIMES:
            place = columns.get_field_index(name)
            columns = columns.set(place, pa.field(name, pa.time64("us")))
    return columns


def merged_columns(has: pa.Schema, wanted: pa.Schema, promotions: Promotions) -> pa.Schema:
    """Returns the columns of a table after a change of the schema.

    Fields are added, also within records; no field is removed, and types change only as ``promotions``
    permits.

    :param has: the present columns of the table
    :param wanted: the columns of the schema
    :raises ColumnError: the type of a column cannot be changed to the type in the schema
    """
    fields = [_merged_field(each, wanted, each.name, promotions) for each in has]
    fields += [each for each in wanted if each.name not in has.names]
    return pa.schema(fields)


def _merged_field(
    has: pa.Field, wanted: pa.Schema | pa.DataType, at: str, promotions: Promotions
) -> pa.Field:
    place = wanted.get_field_index(has.name)
    if place < 0:
        return has
    return pa.field(has.name, _merged_type(has.type, wanted.field(place).type, at, promotions))


def _merged_type(has: pa.DataType, wanted: pa.DataType, at: str, promotions: Promotions) -> pa.DataType:
    if pa.types.is_struct(has) and pa.types.is_struct(wanted):
        fields = [_merged_field(each, wanted, f"{at}.{each.name}", promotions) for each in has]
        fields += [each for each in wanted if has.get_field_index(each.name) < 0]
        return pa.struct(fields)
    if pa.types.is_list(has) and pa.types.is_list(wanted):
        return pa.list_(_merged_type(has.value_type, wanted.value_type, f"{at}[]", promotions))
    if pa.types.is_map(has) and pa.types.is_map(wanted):
        value = _merged_type(has.item_type, wanted.item_type, f"{at}{{}}", promotions)
        return pa.map_(_merged_type(has.key_type, wanted.key_type, at, promotions), value)
    if has == wanted or (wanted, has) in promotions:
        return has
    if (has, wanted) in promotions or _is_wider_decimal(has, wanted, promotions):
        return wanted
    raise ColumnError(f"the field {at!r} is {has} in the table and {wanted} in the schema")


def _is_wider_decimal(has: pa.DataType, wanted: pa.DataType, promotions: Promotions) -> bool:
    """Whether a decimal type differs only in a larger number of digits, and the table format permits this
    change.
    """
    return bool(
        promotions
        and pa.types.is_decimal(has)
        and pa.types.is_decimal(wanted)
        and has.scale == wanted.scale
        and has.precision < wanted.precision
    )


def conformed(batch: pa.RecordBatch, schema: pa.Schema, left_out: Collection[str] = ()) -> pa.RecordBatch:
    """Returns the rows with exactly the columns of ``schema``; missing columns are null.

    :param left_out: columns to drop from the rows; ``schema`` lacks these columns on purpose
    :raises ColumnError: the rows have a column that ``schema`` lacks
    :raises pa.ArrowInvalid: a value does not fit its column
    """
    unknown = sorted(set(batch.schema.names) - {*schema.names, *left_out})
    if unknown:
        raise ColumnError(f"the table has no column {unknown[0]!r}")
    arrays = []
    for field in schema:
        place = batch.schema.get_field_index(field.name)
        column = pa.nulls(batch.num_rows, field.type) if place < 0 else batch.column(place)
        if column.type != field.type:
            column = pc.call_function("cast", [column], pc.CastOptions.safe(field.type))
        arrays.append(column)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
