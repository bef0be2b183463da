"""The optional parts of a message's metadata."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import timedelta

from magnetar.client.exceptions import InvalidMessage
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata, SingleMessageMetadata

_I64, _U64 = 1 << 63, 1 << 64


class MessageOptions:
    """The options of a message, with the names of official clients."""

    __slots__ = (
        "deliver_at",
        "disable_replication",
        "event_timestamp",
        "key_is_bytes",
        "key_is_null",
        "ordering_key",
        "partition_key",
        "properties",
        "replication_clusters",
    )

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool = False,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
        partition_key_bytes: bytes | None = None,
        null_partition_key: bool = False,
        now_ms: int = 0,
    ) -> None:
        """:param event_timestamp: ms since 1970

        :param partition_key_bytes: a key that need not be text, in place of ``partition_key``; consumers get
            it in Base64
        :param null_partition_key: the key is null, which is possible with key-value schemas
        :param deliver_at: ms since 1970, before which the message is not delivered (Shared and Key_Shared)
        :param deliver_after: the same, relative to ``now_ms``
        :raises InvalidMessage: two options exclude each other, or a time does not fit into 64 bits
        """
        if partition_key_bytes is not None:
            if partition_key is not None:
                raise InvalidMessage("partition_key and partition_key_bytes cannot be used together")
            partition_key = b64encode(partition_key_bytes).decode()
        if null_partition_key and partition_key is not None:
            raise InvalidMessage("a key and null_partition_key cannot be used together")
        if deliver_after is not None:
            if deliver_at is not None:
                raise InvalidMessage("deliver_at and deliver_after cannot be used together")
            deliver_at = now_ms + int(deliver_after.total_seconds() * 1000)
        if deliver_at is not None and not _is_within(deliver_at, -_I64, _I64):
            raise InvalidMessage(f"a delivery time must fit into 64 bits, not {deliver_at!r}")
        if event_timestamp is not None and not _is_within(event_timestamp, 0, _U64):
            raise InvalidMessage(
                f"an event time must be 0 or more and fit into 64 bits, not {event_timestamp!r}"
            )
        self.properties = properties
        self.partition_key = partition_key
        self.key_is_bytes = partition_key_bytes is not None
        self.key_is_null = null_partition_key
        self.ordering_key = ordering_key
        self.replication_clusters = replication_clusters
        self.disable_replication = disable_replication
        self.event_timestamp = event_timestamp
        self.deliver_at = deliver_at

    @property
    def must_be_alone(self) -> bool:
        """Whether an option requires a separate entry for the message."""
        return (
            self.deliver_at is not None or self.disable_replication or self.replication_clusters is not None
        )

    def fill(self, metadata: MessageMetadata) -> None:
        """Writes all options to an entry's metadata."""
        self._fill_own(metadata)
        if self.deliver_at is not None:
            metadata.deliver_at_time = self.deliver_at
        if self.disable_replication:
            metadata.replicate_to.append("__local__")
        elif self.replication_clusters:
            metadata.replicate_to.extend(self.replication_clusters)

    def single(self) -> bytes:
        """Returns the options of a message inside a batch, serialized without required fields."""
        metadata = SingleMessageMetadata()
        self._fill_own(metadata)
        return metadata.SerializePartialToString()

    def _fill_own(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        """Writes the options that a message has in a batch as well as alone."""
        if self.properties:
            for key, value in self.properties.items():
                metadata.properties.add(key=key, value=value)
        self.fill_keys(metadata)
        if self.event_timestamp is not None:
            metadata.event_time = self.event_timestamp

    def fill_keys(self, metadata: MessageMetadata | SingleMessageMetadata) -> None:
        """Writes only the keys."""
        if self.partition_key is not None:
            metadata.partition_key = self.partition_key
            if self.key_is_bytes:
                metadata.partition_key_b64_encoded = True
        elif self.key_is_null:
            metadata.null_partition_key = True
        if self.ordering_key is not None:
            metadata.ordering_key = self.ordering_key.encode()


def _is_within(value: object, lowest: int, end: int) -> bool:
    """Whether the value is a number in the range; callers may not check types."""
    return isinstance(value, int) and lowest <= value < end
