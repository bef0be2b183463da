"""The data source ``format("pulsar")``."""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from magnetar.spark.codec.schemas import columns_of, shared_definition
from magnetar.spark.connection import Connection
from magnetar.spark.options import QueryOptions
from magnetar.spark.reading.batch import BatchReader
from magnetar.spark.reading.streaming import StreamReader
from magnetar.spark.writing.sink import BatchSink, StreamSink

__all__ = ["PulsarDataSource"]


class PulsarDataSource(DataSource):
    """The data source; each method delegates to a module."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        """:raises InvalidOption: an option is unknown, out of range, missing, or contradicts another"""
        super().__init__(options)
        self._options = QueryOptions.parse(options)

    @classmethod
    def name(cls) -> str:
        return "pulsar"

    def schema(self) -> StructType:
        with Connection(self._options) as connection:
            return columns_of(shared_definition(connection))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Returns the writer of a batch query.

        :raises InvalidOption: an option is missing, or not supported
        :raises InvalidRows: the columns cannot be written
        """
        return BatchSink(schema, self._options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Returns the writer of a streaming query.

        :raises InvalidOption: an option is missing, or not supported
        :raises InvalidRows: the columns cannot be written
        """
        return StreamSink(schema, self._options)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(self._options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(self._options, schema)
