"""``mirror-verify``: whether two topics, perhaps of two clusters, hold the same messages, however often each.

Compared are key, content, event time and properties; the order of messages is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from magnetar.spark.pipelines.configuration import Cluster
from magnetar.spark.pipelines.plots import Plot, Series
from magnetar.spark.pipelines.report import Table
from magnetar.spark.pipelines.work import Work

_METADATA = ("__key", "__eventTime")
_SHOWN = 120


@dataclass(frozen=True)
class MirrorVerifyConfig:
    left: str
    """A topic of the section ``cluster``."""
    right: str
    """A topic of the cluster below; of the same one when nothing is said."""
    right_service_url: str = ""
    right_admin_url: str = ""
    right_auth_plugin: str = ""
    right_auth_params: str = field(default="", repr=False)
    right_tls_trust_certs: str = ""
    right_tls_hostname_verification: bool = True
    ignored_properties: tuple[str, ...] = ()
    samples: int = 20
    """So many differing messages are shown."""

    def __post_init__(self) -> None:
        if bool(self.right_service_url) != bool(self.right_admin_url):
            raise ValueError("right_service_url and right_admin_url go together")
        if not self.right_service_url and (
            self.right_auth_plugin or self.right_auth_params or self.right_tls_trust_certs
        ):
            raise ValueError("what is shown to the right cluster needs its right_service_url")

    def right_cluster(self, left: Cluster) -> Cluster:
        """What is shown to the left one is for that one alone."""
        if not self.right_service_url:
            return left
        return Cluster(
            self.right_service_url,
            self.right_admin_url,
            self.right_auth_plugin,
            self.right_auth_params,
            self.right_tls_trust_certs,
            self.right_tls_hostname_verification,
        )


CONFIG = MirrorVerifyConfig


def dry_run(work: Work) -> Sequence[str]:
    left, right = _sides(work)
    return [f"would compare {left.count():,} messages with {right.count():,}"]


def run(work: Work) -> None:
    config: MirrorVerifyConfig = work.config
    work.progress.step("comparing")
    left, right = (_prints(side, config) for side in _sides(work))
    columns = ("print", "sample")
    both = (
        left.toDF(*columns, "left")
        .join(right.toDF("print", "other", "right"), "print", "full")
        .select(
            f.coalesce("sample", "other").alias("sample"),
            f.coalesce("left", f.lit(0)).alias("left"),
            f.coalesce("right", f.lit(0)).alias("right"),
        )
        .cache()
    )
    totals = both.agg(
        f.sum("left"),
        f.sum("right"),
        f.sum(f.greatest(f.col("left") - f.col("right"), f.lit(0))),
        f.sum(f.greatest(f.col("right") - f.col("left"), f.lit(0))),
        f.count_if(f.col("left") != f.col("right")),
    ).collect()[0]
    found = [int(each or 0) for each in totals[:4]]
    names = ("messages left", "messages right", "missing right", "too many right")
    work.report.figures.update(zip(names, found, strict=True))
    wrong = both.where("left <> right").orderBy("sample").limit(config.samples).collect()
    both.unpersist()
    if wrong:
        rows = [(row["sample"], row["left"], row["right"]) for row in wrong]
        kinds = int(totals[4])
        shown = "Differences" if kinds == len(rows) else f"Differences ({len(rows)} of {kinds:,})"
        work.report.tables.append(Table(shown, ("message", "left", "right"), rows))
    points = [(float(number), float(count)) for number, count in enumerate(found)]
    work.report.plots.append(Plot("Messages", [Series("", points)], "messages", labels=names))
    work.report.outcome = "differences" if found[2] or found[3] else "finished"


def _sides(work: Work) -> tuple[DataFrame, DataFrame]:
    config: MirrorVerifyConfig = work.config
    there = Work(config, config.right_cluster(work.cluster), work.spark, work.progress, work.report)
    return work.messages(config.left), there.messages(config.right)


def _prints(frame: DataFrame, config: MirrorVerifyConfig) -> DataFrame:
    """How many messages there are of each fingerprint, and a text that shows one."""
    ignored = list(config.ignored_properties)
    entries = f.array_sort(f.map_entries(f.coalesce("__messageProperties", f.create_map())))
    kept = f.filter(entries, lambda each: ~each["key"].isin(ignored)) if ignored else entries
    fields = [name for name in frame.columns if not name.startswith("__")]
    content = f.to_json(
        f.struct(*_METADATA, *fields, kept.alias("properties")), {"ignoreNullFields": "false"}
    )
    text = f.concat_ws(
        " ",
        f.coalesce(f.col("__key").cast("string"), f.lit("-")),
        f.coalesce(f.substring(f.col(fields[0]).cast("string"), 1, _SHOWN), f.lit("-")),
    )
    return (
        frame.select(f.sha2(content, 256).alias("print"), text.alias("sample"))
        .groupBy("print")
        .agg(f.min("sample").alias("sample"), f.count("*").alias("count"))
    )
