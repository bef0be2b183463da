"""A folder of Parquet files to which each batch is added exactly once; manifests list its files.

    data/date=2024-05-01/batch-00000007-0.parquet
    _manifest/batch-00000007.json, _manifest/compaction-00000001.json
    manifest.json                 the contents of all manifests, rewritten at the end of a run

A batch is written to another folder, then committed by its manifest, then moved into ``data``. If the process
ends before the manifest is written, ``data`` contains no file of the batch; if it ends later,
:meth:`Lake.recover` moves the remaining files. Spark and other readers ignore folders that begin with ``_``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from magnetar.spark.durable import sync
from magnetar.spark.pipelines.configuration import PipelineError

__all__ = ["Lake", "LakeFile"]

_DATA, _MANIFESTS, _STAGING, _SUMMARY = "data", "_manifest", "_staging", "manifest.json"


@dataclass(frozen=True)
class LakeFile:
    path: str
    """The path relative to the lake's folder."""
    rows: int
    bytes: int

    @property
    def partition(self) -> str:
        """The partition, such as ``date=2024-05-01``."""
        return str(Path(self.path).parent.relative_to(_DATA))


class Lake:
    """A lake; only one process at a time may write to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check_goes_on(self, checkpoint: Path) -> None:
        """Checks that the checkpoint of a query exists if the lake already has batches of the query.

        :param checkpoint: the checkpoint of the query whose batches are added
        :raises PipelineError: the checkpoint is missing; the query would number its batches from 0 again, and
            the lake would mistake new batches for batches that it already has
        """
        if not checkpoint.exists() and self.files():
            raise PipelineError(
                f"{checkpoint}, the checkpoint of {self.folder}, is missing: restore it, or use another "
                "folder"
            )

    def add(self, frame: DataFrame, batch: int, partition_by: Sequence[str]) -> None:
        """Adds the rows of a batch, unless the batch was already added."""
        name = f"batch-{batch:08d}"
        if self._decided(name):
            return
        staging = self._fresh(name)
        frame.write.partitionBy(*partition_by).parquet(str(staging))
        self._decide(name, staging, [], more={"batch": batch})

    def compact(self, spark: SparkSession, target_bytes: int, order_by: str) -> int:
        """Merges small files of each partition into files of about ``target_bytes``; returns the number of
        merged files.
        """
        gone = 0
        small: dict[str, list[LakeFile]] = {}
        for file in self.files():
            if file.bytes * 2 < target_bytes:
                small.setdefault(file.partition, []).append(file)
        for partition, files in sorted(small.items()):
            for group in _groups(files, target_bytes):
                self._merge(spark, partition, group, order_by)
                gone += len(group)
        return gone

    def files(self) -> list[LakeFile]:
        """Returns the files of the lake."""
        found: dict[str, LakeFile] = {}
        for manifest in self._manifests():
            for path in manifest["replaces"]:
                found.pop(path, None)
            for each in manifest["files"]:
                file = LakeFile(each["path"], each["rows"], each["bytes"])
                found[file.path] = file
        return [found[path] for path in sorted(found)]

    def read(self, spark: SparkSession) -> DataFrame:
        """Returns all rows, with the columns of all schema versions."""
        paths = [str(self.folder / file.path) for file in self.files()]
        base = str(self.folder / _DATA)
        return spark.read.option("mergeSchema", "true").option("basePath", base).parquet(*paths)

    def recover(self) -> None:
        """Completes operations that were interrupted by a crash."""
        for manifest in self._manifests():
            self._move(manifest)
        shutil.rmtree(self.folder / _STAGING, ignore_errors=True)

    def summarize(self) -> list[LakeFile]:
        """Writes ``manifest.json``, and returns the files that it lists."""
        files = self.files()
        summary = {"rows": sum(file.rows for file in files), "files": [asdict(file) for file in files]}
        _write_whole(self.folder / _SUMMARY, summary)
        return files

    def _merge(self, spark: SparkSession, partition: str, files: list[LakeFile], order_by: str) -> None:
        number = 1 + sum(1 for each in self._manifests() if each["name"].startswith("compaction-"))
        name = f"compaction-{number:08d}"
        staging = self._fresh(name)
        paths = [str(self.folder / file.path) for file in files]
        frame = spark.read.option("mergeSchema", "true").parquet(*paths)
        frame.coalesce(1).sortWithinPartitions(order_by).write.parquet(str(staging / partition))
        self._decide(name, staging, [file.path for file in files], more={})

    def _decide(self, name: str, staging: Path, replaces: list[str], more: dict[str, object]) -> None:
        files = []
        for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
            rows = pq.ParquetFile(path).metadata.num_rows
            if not rows:
                continue
            sync(path)
            target = Path(_DATA) / path.parent.relative_to(staging) / f"{name}-{number}.parquet"
            staged = str(path.relative_to(self.folder))
            files.append({"staged": staged, "path": str(target), "rows": rows, "bytes": path.stat().st_size})
        manifest = {"name": name, **more, "files": files, "replaces": replaces}
        _write_whole(self.folder / _MANIFESTS / f"{name}.json", manifest)
        self._move(manifest)
        shutil.rmtree(staging, ignore_errors=True)

    def _move(self, manifest: dict[str, Any]) -> None:
        for path in manifest["replaces"]:
            (self.folder / path).unlink(missing_ok=True)
        for each in manifest["files"]:
            staged, target = self.folder / each["staged"], self.folder / each["path"]
            if staged.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(staged, target)
                sync(target.parent)

    def _decided(self, name: str) -> bool:
        return (self.folder / _MANIFESTS / f"{name}.json").exists()

    def _manifests(self) -> Iterator[dict[str, Any]]:
        """Yields the manifests of batches, then the manifests of compactions, in order."""
        folder = self.folder / _MANIFESTS
        names: Iterable[Path] = sorted(folder.glob("*.json")) if folder.exists() else ()
        for path in names:
            yield dict(json.loads(path.read_text("utf-8")))

    def _fresh(self, name: str) -> Path:
        staging = self.folder / _STAGING / name
        shutil.rmtree(staging, ignore_errors=True)
        staging.parent.mkdir(parents=True, exist_ok=True)
        return staging


def _groups(files: list[LakeFile], target_bytes: int) -> Iterator[list[LakeFile]]:
    group: list[LakeFile] = []
    size = 0
    for file in files:
        if group and size + file.bytes > target_bytes:
            if len(group) > 1:
                yield group
            group, size = [], 0
        group.append(file)
        size += file.bytes
    if len(group) > 1:
        yield group


def _write_whole(path: Path, value: Any) -> None:
    """Writes a file atomically and durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(value, indent=1), "utf-8")
    sync(aside)
    os.replace(aside, path)
    sync(path.parent)
