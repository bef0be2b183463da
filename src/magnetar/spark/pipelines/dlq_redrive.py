"""``dlq-redrive``: sends selected dead letters back to their original topics, each exactly once even over
several runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from magnetar.spark.pipelines.configuration import PipelineError, check_expression, init_value
from magnetar.spark.pipelines.dead_letters import CAUSES, SYSTEM_PROPERTIES, with_origin
from magnetar.spark.pipelines.outbox import Outbox
from magnetar.spark.pipelines.report import Table
from magnetar.spark.pipelines.work import Work, chosen

_OWN = ("cause", "origin_topic", "subscription", "attempts", "origin_id", "dead_letter_topic", "redriven")
REDRIVEN = "REDRIVEN_FROM"
"""The property of a redriven message with the topic and message id of its dead letter.

If a message was redriven several times, these are the topic and message id of its last dead letter.
"""


@dataclass(frozen=True)
class DlqRedriveConfig:
    topic: str = field(metadata=init_value("persistent://public/default/orders-billing-DLQ"))
    """The dead letter topic."""
    work: Path = field(metadata=init_value("redrive"))
    """A folder that records the sent messages; with another folder, messages are sent again."""
    target: str = ""
    """The target topic; empty: the original topic of each dead letter."""
    where: str = ""
    """A Spark SQL expression over columns such as cause, origin_topic, subscription, attempts and value."""
    most: int = 0
    """Maximum number of messages in this run; 0: no limit."""
    causes: tuple[str, ...] = CAUSES
    options: dict[str, str] = field(default_factory=dict)
    """Additional options of ``format("pulsar")``."""

    def __post_init__(self) -> None:
        if not self.causes:
            raise ValueError("causes is empty; name at least one property that contains the cause")
        if self.most < 0:
            raise ValueError(f"most is {self.most}, but must be 0 (no limit) or more")
        check_expression("where", self.where)


CONFIG = DlqRedriveConfig
NEEDS_SPARK = True


def check(work: Work) -> None:
    """Checks the cluster before Spark starts; see :class:`magnetar.spark.pipelines.work.Pipeline`."""
    work.check_cluster(work.config.topic)


def dry_run(work: Work) -> Sequence[str]:
    config: DlqRedriveConfig = work.config
    lines = [
        f"{box.folder.name} is unfinished: it would be published first"
        for box in _boxes(config)
        if box.decided and not box.published
    ]
    for row in _counted(_chosen(work)):
        lines.append(f"would send {row[2]:,} messages to {row[0]} ({row[1]})")
    return lines or ["there is nothing to send"]


def run(work: Work) -> None:
    config: DlqRedriveConfig = work.config
    boxes = _boxes(config)
    for box in boxes:
        if box.decided and not box.published:
            work.progress.step(f"finishing {box.folder.name}")
            _publish(work, box)
    box = Outbox(config.work / f"run-{len([each for each in boxes if each.decided]):06d}")
    work.progress.step("choosing dead letters")
    if not box.fill(_chosen(work), _can_be_sent):
        work.report.figures["messages sent again"] = 0
        return
    rows = _counted(box.rows(work.spark))
    work.progress.step("sending again")
    _publish(work, box)
    work.report.figures["messages sent again"] = sum(row[2] for row in rows)
    work.report.tables.append(Table("Sent again", ("to", "cause", "messages"), rows))


def _can_be_sent(chosen: DataFrame) -> bool:
    """Whether any dead letters are selected.

    :raises PipelineError: a selected dead letter does not contain its original topic
    """
    found = chosen.agg(f.count("*"), f.count("__topic")).collect()[0]
    if found[0] != found[1]:
        raise PipelineError(
            "some dead letters do not contain their original topic; set 'target', or exclude these "
            "dead letters with 'where'"
        )
    return bool(found[0])


def _boxes(config: DlqRedriveConfig) -> list[Outbox]:
    return [Outbox(path) for path in sorted(config.work.glob("run-*"))]


def _publish(work: Work, box: Outbox) -> None:
    config: DlqRedriveConfig = work.config
    frame = box.rows(work.spark).drop(*_OWN)
    box.publish(frame, "all", {**work.cluster.options(), **config.options})
    box.close()


def _chosen(work: Work) -> DataFrame:
    """Returns the selected dead letters that were not sent before; ``__topic`` is their target."""
    config: DlqRedriveConfig = work.config
    letters = with_origin(work.messages(config.topic), config.causes)
    letters = letters.withColumn("redriven", f.concat("__topic", f.lit("|"), f.hex("__messageId")))
    letters = chosen(letters, config.where)
    for box in _boxes(config):
        if box.decided:
            letters = letters.join(box.rows(work.spark).select("redriven"), "redriven", "left_anti")
    if config.most:
        letters = letters.orderBy("__publishTime", "redriven").limit(config.most)
    target = f.lit(config.target) if config.target else f.col("origin_topic")
    kept = f.map_filter("__messageProperties", lambda name, _: ~name.isin(*SYSTEM_PROPERTIES, REDRIVEN))
    marked = f.map_concat(kept, f.create_map(f.lit(REDRIVEN), f.col("redriven")))
    return letters.withColumn("__topic", target).withColumn("__messageProperties", marked)


def _counted(frame: DataFrame) -> list[tuple[str, str, int]]:
    rows = frame.groupBy("__topic", "cause").count().orderBy("__topic", "cause").collect()
    return [(row[0], row[1], row[2]) for row in rows]
