"""Choices, with the names and numbers of the official Python client."""

from __future__ import annotations

from enum import IntEnum


class ConsumerType(IntEnum):
    Exclusive = 0
    Shared = 1
    Failover = 2
    KeyShared = 3


class InitialPosition(IntEnum):
    """Where a subscription begins that did not exist."""

    Latest = 0
    Earliest = 1


class ProducerAccessMode(IntEnum):
    Shared = 0
    Exclusive = 1
    WaitForExclusive = 2
    ExclusiveWithFencing = 3


class CompressionType(IntEnum):
    NONE = 0
    LZ4 = 1
    ZLib = 2
    ZSTD = 3
    SNAPPY = 4


class PartitionsRoutingMode(IntEnum):
    """Which partition gets a message without a key."""

    UseSinglePartition = 0
    RoundRobinDistribution = 1
    CustomPartition = 2
