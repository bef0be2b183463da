"""``generate``: publishes example messages; the content of each message depends only on its index and the
configuration, so that results can be verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from magnetar.spark.pipelines.configuration import init_value
from magnetar.spark.pipelines.work import Work

REGIONS = ("north", "east", "south", "west")
CAUSES = ("TimeoutException", "ValidationError", "NullPointerException")
FIRST_SECOND = 1_700_000_000
"""Event time of the first message, in seconds since 1970."""


@dataclass(frozen=True)
class GenerateConfig:
    topic: str = field(metadata=init_value("persistent://public/default/orders"))
    """The topic to publish to."""
    messages: int = 1_000_000
    """The number of messages to publish."""
    kind: Literal["orders", "dead-letters"] = "orders"
    """``orders``: JSON with id, region, amount and a text; ``dead-letters``: dead letters in the form of
    official clients.
    """
    late_every: int = 97
    """One message out of this many is an hour late."""
    seconds: int = 86_400
    """Period over which the event times are spread, in seconds."""
    origin: str = "persistent://public/default/orders"
    """The original topic of dead letters."""
    work: Path | None = None
    """A folder that records the progress, so that each message is published once; None: at least once."""

    def __post_init__(self) -> None:
        if self.messages < 1 or self.late_every < 1 or self.seconds < 1:
            raise ValueError(
                "messages, late_every and seconds must be at least 1, not "
                f"{self.messages}, {self.late_every} and {self.seconds}"
            )


CONFIG = GenerateConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
    work.check_cluster(work.config.topic, create=True)


def dry_run(work: Work) -> Sequence[str]:
    config: GenerateConfig = work.config
    return [f"would publish {config.messages:,} {config.kind} to {config.topic}"]


def run(work: Work) -> None:
    config: GenerateConfig = work.config
    work.progress.step(f"publishing {config.messages:,} {config.kind}")
    frame = example(work.spark, config)
    options = {**work.cluster.options(), "topic": config.topic}
    if config.work is None:
        options["delivery"] = "at-least-once"
    else:
        options |= {"writeId": "generate", "stagingDir": str(config.work)}
    frame.write.format("pulsar").options(**options).mode("append").save()
    work.report.figures["messages published"] = config.messages


def example(spark: SparkSession, config: GenerateConfig) -> DataFrame:
    """Returns the messages as rows for ``format("pulsar")``."""
    number = f.col("id")
    region = f.element_at(f.array(*[f.lit(each) for each in REGIONS]), (number % 4 + 1).cast("int"))
    order = f.struct(
        number.alias("id"),
        region.alias("region"),
        ((number * 37) % 10_000 / 100).alias("amount"),
        f.concat(f.lit("order "), number).alias("text"),
    )
    # One partition, so that event times ascend, except for deliberately late messages.
    return spark.range(0, config.messages, 1, 1).select(
        f.to_json(order).cast("binary").alias("value"),
        f.concat(f.lit("customer-"), number % 1000).alias("__key"),
        _event_time(number, config).alias("__eventTime"),
        _properties(number, config).alias("__messageProperties"),
    )


def _event_time(number: Column, config: GenerateConfig) -> Column:
    late = f.when(number % config.late_every == config.late_every - 1, f.lit(3600)).otherwise(f.lit(0))
    second = f.lit(FIRST_SECOND) + f.floor(number * config.seconds / config.messages) - late
    return f.timestamp_seconds(second)


def _properties(number: Column, config: GenerateConfig) -> Column:
    if config.kind == "orders":
        return f.create_map(f.lit("source"), f.lit("generate"))
    cause = f.element_at(
        f.array(*[f.lit(each) for each in CAUSES]),
        f.when(number % 10 < 5, 1).when(number % 10 < 8, 2).otherwise(3),
    )
    return f.create_map(
        f.lit("REAL_TOPIC"),
        f.lit(config.origin),
        f.lit("REAL_SUBSCRIPTION"),
        f.lit("billing"),
        f.lit("RECONSUMETIMES"),
        f.lit("3"),
        f.lit("ORIGIN_MESSAGE_ID"),
        f.concat(f.lit("7:"), number),
        f.lit("EXCEPTION"),
        cause,
    )
