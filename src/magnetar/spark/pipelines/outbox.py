"""Publishes rows to a topic exactly once: first writes them to files, then publishes the files under a name
that never changes.

    NAME/rows/*.parquet     the rows to publish: appears atomically, and never changes
    NAME/staging            the writer's progress
    NAME/published          exists after all messages are confirmed
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from magnetar.spark.durable import sync

__all__ = ["Outbox"]

_COLUMNS = frozenset(("__key", "__eventTime", "__messageProperties", "__topic"))


class Outbox:
    """A set of messages for a topic, which never changes once it is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._text_keys: bool | None = None

    @property
    def decided(self) -> bool:
        """Whether the rows to publish are written, so that they never change."""
        return self._rows.exists()

    @property
    def published(self) -> bool:
        return (self.folder / "published").exists()

    @property
    def _rows(self) -> Path:
        return self.folder / "rows"

    def fill(self, frame: DataFrame, check: Callable[[DataFrame], bool] | None = None) -> bool:
        """Writes the rows to publish, unless they are written already; keeps the order of the frame's
        partitions.

        :param check: examines the rows; if it returns False or raises an exception, the outbox stays empty.
            None: no examination
        :returns: whether the rows are written
        """
        if self.decided:
            return True
        aside = self.folder / "filling"
        shutil.rmtree(aside, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        frame.write.parquet(str(aside))
        if check is not None and not check(frame.sparkSession.read.parquet(str(aside))):
            return False
        for path in aside.iterdir():
            sync(path)
        sync(aside)
        os.rename(aside, self._rows)
        sync(self.folder)
        return True

    def files(self) -> list[Path]:
        """Returns the files, in the order of the frame's partitions."""
        return sorted(self._rows.glob("*.parquet"))

    def rows(self, spark: SparkSession) -> DataFrame:
        return spark.read.parquet(str(self._rows))

    def has_text_keys(self, spark: SparkSession) -> bool:
        """Whether ``__key`` is binary but all keys are valid UTF-8, so that they can be published as
        strings.
        """
        rows = self.rows(spark)
        if dict(rows.dtypes).get("__key") != "binary":
            return False
        return rows.where(~f.is_valid_utf8(f.col("__key").cast("string"))).isEmpty()

    def publish(self, frame: DataFrame, name: str, options: dict[str, str]) -> None:
        """Publishes rows of the outbox; can be repeated after any failure.

        :param frame: a part of the rows
        :param name: identifies this part
        """
        staging = str(self.folder / "staging")
        if self._text_keys is None:
            self._text_keys = self.has_text_keys(frame.sparkSession)
        if self._text_keys:
            frame = frame.withColumn("__key", f.col("__key").cast("string"))
        sendable = frame.select(
            *[each for each in frame.columns if each in _COLUMNS or not each.startswith("__")]
        )
        writer = sendable.write.format("pulsar").options(**options, writeId=name, stagingDir=staging)
        writer.mode("append").save()

    def close(self) -> None:
        """Records that all rows are published."""
        (self.folder / "published").touch()
        shutil.rmtree(self.folder / "staging", ignore_errors=True)
