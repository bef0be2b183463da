"""The sections of the pipelines ``table`` and ``table-maintain``, and where their tables are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Literal

from pyspark.sql import SparkSession

from magnetar.build_info import install_extra
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.spark.pipelines.configuration import CatalogLocation, Location, PipelineError, init_value
from magnetar.spark.pipelines.table_commits import OpenTable
from magnetar.spark.pipelines.table_files import ACCESS_OPTIONS, CATALOG_OPTIONS, S3, TableFolder
from magnetar.spark.pipelines.table_partitions import parse_partitions
from magnetar.spark.pipelines.table_upkeep import TableUpkeep, maintain

__all__ = [
    "TableConfig",
    "TablesSection",
    "check_access",
    "check_library",
    "folder_of",
    "iceberg_table",
    "is_address",
    "is_namespace",
    "opened",
    "place_of",
]

_CATALOG_FILE = "catalog.db"
_LEAST_ORPHAN_AGE = "72 min"
"""A file is younger while its commit may be under way."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class TablesSection:
    """Which tables, and where they are."""

    topics: tuple[str, ...] = field(metadata=init_value(["persistent://public/default/orders"]))
    """Topics, and namespaces such as public/default; a topic with its partitions is one table."""
    path: Location = field(metadata=init_value("tables"))
    """The folder of the tables, or s3://BUCKET/PATH. A table lies at TENANT/NAMESPACE/TOPIC in it."""
    pattern: str = ""
    """A regular expression for full names of topics: persistent://public/default/orders-.*; empty: none."""
    format: Literal["delta", "iceberg"] = "delta"
    catalog: CatalogLocation | None = None
    """The catalog of Iceberg tables: an SQLite file, or the address of a REST catalog, such as
    https://HOST/PATH; empty: catalog.db in path."""
    catalog_options: dict[str, str] = field(default_factory=dict)
    """Access to a REST catalog: warehouse, prefix, token, credential (ID:SECRET), scope and
    oauth2_server_uri."""
    storage: dict[str, str] = field(default_factory=dict)
    """Access to s3://: endpoint, region, access_key_id, secret_access_key and session_token.
    Without them, the variables of the environment count (AWS_ACCESS_KEY_ID and others)."""
    quarantine_name: str = "{topic}_quarantine"
    """The name of the table with the messages that the table of a topic cannot hold, beside that table."""
    file_mb: int = 128
    """Upkeep merges smaller files of a partition up to this size; 0: never."""
    keep_days: float = 7.0
    """Upkeep lets states of a table be read that are not older than this."""
    orphan_age: str = "3 d"
    """Upkeep deletes files that no such state names, if they are older than this: a time such as "90 min",
    "12 h" or "3 d", at least "72 min"."""
    renamed: ClassVar[Mapping[str, str]] = {"orphan_days": 'orphan_age = "{} d"'}
    """Former keys, and what to write instead; ``{}`` stands for the value."""

    def __post_init__(self) -> None:
        if not self.topics and not self.pattern:
            raise ValueError("one of topics and pattern is required")
        try:
            re.compile(self.pattern)
        except re.error as error:
            raise ValueError(f"pattern is not a regular expression: {error}") from error
        for each in self.topics:
            _check_name(each)
        self._check_storage()
        if not re.fullmatch(r"[A-Za-z0-9_-]*(\{topic\})?[A-Za-z0-9_-]*", self.quarantine_name) or (
            self.quarantine_name in ("", "{topic}")
        ):
            raise ValueError(
                f"quarantine_name = {self.quarantine_name!r} must have letters, digits, _, - and {{topic}}, "
                "and differ from {topic}"
            )
        if self.file_mb < 0 or self.keep_days < 0:
            raise ValueError(
                f"file_mb and keep_days must not be negative, not {self.file_mb} and {self.keep_days}"
            )
        if _seconds("orphan_age", self.orphan_age) < _seconds("orphan_age", _LEAST_ORPHAN_AGE):
            raise ValueError(f'orphan_age must be at least "{_LEAST_ORPHAN_AGE}", not {self.orphan_age!r}')

    def _check_storage(self) -> None:
        check_access(self.path, self.storage, self.catalog, self.catalog_options)
        if self.catalog and self.format != "iceberg":
            raise ValueError("catalog is for format = 'iceberg'; tables of Delta Lake have none")
        if self.path.startswith(S3) and self.format == "iceberg" and not self.catalog:
            raise ValueError("catalog is required for Iceberg tables at s3://: a file, or a REST catalog")

    @property
    def has_rest_catalog(self) -> bool:
        """Whether ``catalog`` is the address of a REST catalog."""
        return is_address(self.catalog)

    @property
    def catalog_place(self) -> str:
        """The file, or the address, of the catalog of Iceberg tables."""
        return self.catalog or f"{self.path}/{_CATALOG_FILE}"

    @property
    def may_have_tables(self) -> bool:
        """Whether looking for tables creates nothing."""
        return self.format == "delta" or self.has_rest_catalog or Path(self.catalog_place).exists()

    def keep_up(self, spark: SparkSession, table: OpenTable) -> TableUpkeep:
        """Maintains a table as this section says.

        :raises TableError: the table cannot be used
        """
        keep = timedelta(days=self.keep_days)
        orphans = timedelta(seconds=_seconds("orphan_age", self.orphan_age))
        return maintain(spark, table, self.file_mb << 20, keep, orphans)


@dataclass(frozen=True)
class TableConfig(TablesSection):
    mode: Literal["append", "upsert"] = "append"
    """append: each message is a row; upsert: the last message of each key is a row, none if it is empty."""
    buckets: int = 16
    """Parts of a table with mode = "upsert", by a hash of the key; a batch rewrites those with its keys."""
    late_hours: float = 24.0
    """With mode = "upsert": how long after its publish time a message may arrive. Deletions are remembered
    for this time, so that an earlier message of another partition does not create the row again."""
    on_error: Literal["stop", "quarantine"] = "stop"
    """stop: a message that the table cannot hold ends the run; quarantine: it goes to another table."""
    partition_by: tuple[str, ...] = ()
    """Elements such as day(__publishTime), hour(__eventTime), bucket(16, __key) or the name of a column."""
    trigger: str = ""
    """Pause between the starts of two rounds, such as "30 s", "5 min" or "1 h"; empty: one round."""
    maintain_every: int = 0
    """After this many batches of a table, its upkeep runs, as by table-maintain; 0: never."""
    metrics_port: int = 0
    """The port on which the driver answers GET /metrics while the pipeline runs; 0: none."""
    max_rows_per_batch: int = 1_000_000
    """The most messages that are committed together."""
    options: dict[str, str] = field(default_factory=dict)
    """Additional options of ``format("pulsar")``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.metrics_port < 1 << 16:
            raise ValueError(f"metrics_port must be 0 to 65535, not {self.metrics_port}")
        if self.max_rows_per_batch < 1 or self.maintain_every < 0:
            raise ValueError(
                "max_rows_per_batch must be at least 1 and maintain_every at least 0, not "
                f"{self.max_rows_per_batch} and {self.maintain_every}"
            )
        if not self.late_hours >= 0:
            raise ValueError(f"late_hours must be 0 or more, not {self.late_hours}")
        both = {each.lower() for each in self.options} & {"mode", "quarantine.path"}
        if both and self.on_error == "quarantine":
            raise ValueError(f"options: {min(both)} has no effect with on_error = 'quarantine'; remove it")
        if self.mode == "upsert" and self.partition_by:
            raise ValueError("partition_by is for mode = 'append'; tables with mode = 'upsert' have buckets")
        _ = self.pause_seconds, self.partitions

    @property
    def partitions(self) -> str:
        """The normal form of ``partition_by``."""
        by = (f"bucket({self.buckets}, __key)",) if self.mode == "upsert" else self.partition_by
        return "; ".join(str(each) for each in parse_partitions(by)) or "none"

    @property
    def pause_seconds(self) -> float:
        """The value of ``trigger`` in seconds; 0: one round."""
        return _seconds("trigger", self.trigger) if self.trigger else 0.0


def _seconds(name: str, text: str) -> float:
    """Returns the value of a key that has a time, in seconds.

    :raises ValueError: it is not a time above 0
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|min|h|d)", text)
    if found is None or not float(found[1]):
        raise ValueError(f'{name} must be a time such as "30 s", "5 min", "1 h" or "3 d", not {text!r}')
    return float(found[1]) * _SECONDS[found[2]]


def is_address(catalog: str | None) -> bool:
    """Whether a catalog is a REST catalog."""
    return (catalog or "").startswith(("http://", "https://"))


def check_access(
    path: str, storage: Mapping[str, str], catalog: str | None, catalog_options: Mapping[str, str]
) -> None:
    """Checks the access to a folder and a catalog, as the sections of pipelines have it.

    :raises ValueError: an option does not exist, or has nothing to apply to
    """
    unknown = sorted(set(storage) - set(ACCESS_OPTIONS))
    if unknown:
        raise ValueError(f"storage has no option {unknown[0]!r}; use {', '.join(ACCESS_OPTIONS)}")
    if storage and not path.startswith(S3):
        raise ValueError(f"storage is for tables at s3://, not for path {path}")
    unknown = sorted(set(catalog_options) - set(CATALOG_OPTIONS))
    if unknown:
        raise ValueError(f"catalog_options has no option {unknown[0]!r}; use {', '.join(CATALOG_OPTIONS)}")
    if catalog_options and not is_address(catalog):
        raise ValueError("catalog_options is for a REST catalog, whose address is the catalog")


def is_namespace(name: str) -> bool:
    return "://" not in name and name.count("/") == 1


def _check_name(name: str) -> None:
    """:raises ValueError: it is not the name of a topic or a namespace"""
    if is_namespace(name):
        return
    try:
        topic = TopicName.parse(name)
    except InvalidName as error:
        raise ValueError(f"topics: {error}") from error
    if topic.domain.value != "persistent":
        raise ValueError(f"topics: {name!r} is not persistent: its messages are not stored")


def place_of(topic: str) -> tuple[str, ...]:
    """Returns tenant, namespace and topic as names of folders and tables."""
    name = TopicName.parse(topic)
    return tuple(_plain(each) for each in (name.tenant, name.namespace, name.local))


def _plain(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return name
    # Different names stay different.
    return f"{re.sub('[^A-Za-z0-9_-]', '_', name)}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def check_library(config: TablesSection) -> None:
    """Checks that the library of the format is installed.

    :raises PipelineError: the library of the format is missing
    """
    try:
        import_module(f"magnetar.spark.pipelines.table_{config.format}")
    except ImportError as error:
        raise PipelineError(
            f"format = {config.format!r} needs a library ({error}): {install_extra('lake')}"
        ) from error


def folder_of(config: TablesSection, topic: str) -> TableFolder:
    """Returns the folder of a topic's table."""
    return TableFolder("/".join((config.path, *place_of(topic))), config.storage)


def opened(config: TablesSection, topic: str, *, is_quarantine: bool = False) -> OpenTable:
    """Returns the table of a topic, whether it exists or not; creates the file that is the catalog of tables.

    :param is_quarantine: the quarantine table of the topic instead
    :raises TableError: the REST catalog cannot be used
    """
    place = place_of(topic)
    if is_quarantine:
        place = (*place[:2], config.quarantine_name.replace("{topic}", place[2]))
    folder = TableFolder("/".join((config.path, *place)), config.storage)
    if config.format == "delta":
        from magnetar.spark.pipelines.table_delta import DeltaFormat

        return DeltaFormat(folder)
    return iceberg_table(folder, place, config.catalog_place, config.catalog_options)


def iceberg_table(
    folder: TableFolder, place: tuple[str, ...], catalog: str, catalog_options: Mapping[str, str]
) -> OpenTable:
    """Returns an Iceberg table, whether it exists or not.

    :param place: its name in the catalog
    :param catalog: a file, which is created if it does not exist, or the address of a REST catalog
    :raises TableError: the REST catalog cannot be used
    :raises ImportError: the library is missing
    """
    from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in, rest_catalog

    options = folder.iceberg_options()
    if is_address(catalog):
        return IcebergFormat(rest_catalog(catalog, options, catalog_options), place, folder)
    return IcebergFormat(catalog_in(catalog, options), place, folder)
