"""The data of each side for ``mirror-verify``: messages with fingerprints, and what the side's cluster
reports about topics.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from magnetar.admin_client import NotAllowed, NotAuthorized, NotFound
from magnetar.naming.replicators import SOURCE_POSITION
from magnetar.naming.topic_name import TopicName
from magnetar.spark.codec.columns import BYTES, ORIGIN
from magnetar.spark.codec.message_order import sort_key
from magnetar.spark.connection import Connection
from magnetar.spark.ledgers import layout_of
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.work import Work
from magnetar.spark.topics import topics_of

__all__ = ["SHOWN", "MirrorSide", "is_namespace", "shortest"]

_METADATA = ("__key", "__eventTime")
SHOWN = ("key", "event time", "properties", "content")
"""The columns of a message that a report shows."""
_SHOWN = 120
_PARTITION = r"-partition-\d+$"
_REPLICATOR = "pulsar.repl."


def is_namespace(name: str) -> bool:
    """Whether the name is ``TENANT/NAMESPACE``; topic names have one part or three."""
    return re.fullmatch(r"[^/:]+/[^/:]+", name) is not None


@dataclass(frozen=True)
class TimesToLive:
    """The times to live of the topics of one :class:`MirrorSide`."""

    seconds: dict[str, int]
    """Time to live in seconds, by the name that :meth:`MirrorSide.pair_of` returns for the topic; topics
    whose messages do not expire are omitted.
    """
    unknown: list[str]
    """Topics whose time to live is unknown, because the cluster has no topic policies or does not show
    them.
    """


@dataclass(frozen=True)
class MirrorSide:
    """The topics of one side of the comparison."""

    work: Work
    """The run, with the cluster of this side."""
    name: str
    """A topic, or a namespace, which stands for its persistent topics without system topics."""
    cluster: str
    """The name of this cluster in ``replicate_to`` of messages and in replicators of the other side; empty:
    not known.
    """

    def _source(self) -> dict[str, str]:
        if not is_namespace(self.name):
            return {"topic": self.name}
        return {"topicsPattern": rf"persistent://{self.name}/(?!__).+", "value.format": "bytes"}

    def topics(self) -> list[str]:
        """Returns the full names of the topics, with each partition of partitioned topics."""
        with Connection(QueryOptions.parse(self.work.cluster.options() | self._source())) as connection:
            return topics_of(connection)

    def confirmed(self, other: str) -> dict[str, str]:
        """Returns for each topic the position (``ledger:entry``) up to which its messages are replicated to
        the cluster ``other``.

        Topics without a replicator to this cluster are omitted.
        """
        found = {}
        for topic in self.topics() if other else ():
            try:
                position = layout_of(self.work.admin, topic).cursors.get(_REPLICATOR + other)
            except NotFound:
                continue
            if position is not None:
                found[topic] = position
        return found

    def times_to_live(self) -> TimesToLive:
        """Returns the times to live of all topics."""
        found = TimesToLive({}, [])
        for name in sorted({re.sub(_PARTITION, "", topic) for topic in self.topics()}):
            try:
                seconds = self.work.admin.message_ttl(name)
            except NotFound:
                continue
            except (NotAllowed, NotAuthorized):
                found.unknown.append(name)
                continue
            if seconds:
                found.seconds[self.pair_of(name)] = seconds
        return found

    def pair_of(self, topic: str) -> str:
        """Returns the name by which corresponding topics of both sides are matched; empty if two single
        topics are compared.
        """
        return re.sub(_PARTITION, "", TopicName.parse(topic).local) if is_namespace(self.name) else ""

    def prints(self, ignored: Sequence[str], before_ms: int) -> DataFrame:
        """Returns the messages with the columns ``pair``, ``print`` (fingerprint), ``sample``
        (:data:`SHOWN`), ``topic``, ``place``, ``published`` (in milliseconds), ``producer``, ``to`` and
        ``origin``.

        ``place`` sorts in the order of a topic's messages. The fingerprint excludes properties and metadata
        that replication adds.

        :param ignored: properties that are not compared
        :param before_ms: exclusive end of the publish times, in milliseconds since 1970; replication does not
            change publish times
        """
        source = self._source()
        if is_namespace(self.name):
            schema = BYTES
        else:
            schema = self.work.read(source).schema
        frame = self.work.read(source, StructType([*schema.fields, *ORIGIN]))
        # Both sides leave out the same messages, even if more are published meanwhile.
        frame = frame.where(f.col("__publishTime") < f.timestamp_millis(f.lit(before_ms)))
        pair: Column = f.lit("")
        if is_namespace(self.name):
            pair = f.regexp_replace("__topic", r"^persistent://[^/]+/[^/]+/", "")
            pair = f.regexp_replace(pair, _PARTITION, "")
        fields = [name for name in frame.columns if not name.startswith("__")]
        properties = _properties(ignored)
        text = f.struct(
            *(f.coalesce(each, f.lit("-")).alias(name) for name, each in _shown(fields, properties).items())
        )
        return frame.select(
            pair.alias("pair"),
            f.sha2(_content(fields, properties), 256).alias("print"),
            text.alias("sample"),
            f.col("__topic").alias("topic"),
            sort_key(f.col("__messageId")).alias("place"),
            f.unix_millis("__publishTime").alias("published"),
            f.col("__producerName").alias("producer"),
            f.col("__replicateTo").alias("to"),
            f.col("__replicatedFrom").alias("origin"),
        )


def _properties(ignored: Sequence[str]) -> Column:
    """Returns the compared properties, sorted by name."""
    left_out = [*ignored, SOURCE_POSITION]
    entries = f.array_sort(f.map_entries(f.coalesce("__messageProperties", f.create_map())))
    return f.filter(entries, lambda each: ~each["key"].isin(left_out))


def _content(fields: Sequence[str], properties: Column) -> Column:
    compared = f.struct(*_METADATA, *fields, properties.alias("properties"))
    return f.to_json(compared, {"ignoreNullFields": "false"})


def _shown(fields: Sequence[str], properties: Column) -> Mapping[str, Column]:
    """Returns the columns :data:`SHOWN`, as strings, by which a report shows how messages differ."""
    pairs = f.transform(properties, lambda each: f.concat_ws("=", each["key"], each["value"]))
    contents = f.col(fields[0]).cast("string") if len(fields) == 1 else f.to_json(f.struct(*fields))
    columns = {
        "key": f.col("__key").cast("string"),
        "event time": f.date_format("__eventTime", "yyyy-MM-dd HH:mm:ss.SSS"),
        "properties": f.nullif(f.array_join(pairs, ", "), f.lit("")),
        "content": contents,
    }
    return {name: f.substring(each, 1, _SHOWN) for name, each in columns.items()}


def shortest(*times: Mapping[str, int]) -> dict[str, int]:
    """Returns the shortest time to live of each pair of topics."""
    found: dict[str, int] = {}
    for each in times:
        for pair, seconds in each.items():
            found[pair] = min(seconds, found.get(pair, seconds))
    return found
