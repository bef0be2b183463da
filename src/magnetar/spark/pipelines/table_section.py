"""The sections of the pipelines ``table`` and ``table-maintain``, and the locations of their tables."""

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
"""Minimum age of orphaned files to delete: younger files can belong to a commit in progress."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class TablesSection:
    """The tables and their locations."""

    topics: tuple[str, ...] = field(metadata=init_value(["persistent://public/default/orders"]))
    """Topics, or namespaces such as public/default; a partitioned topic becomes one table."""
    path: Location = field(metadata=init_value("tables"))
    """The folder of the tables, or s3://BUCKET/PATH; it contains each table at TENANT/NAMESPACE/TOPIC."""
    pattern: str = ""
    """A regular expression for further full topic names, such as persistent://public/default/orders-.*;
    empty: no further topics."""
    format: Literal["delta", "iceberg"] = "delta"
    catalog: CatalogLocation | None = None
    """The catalog of Iceberg tables: an SQLite file, or the URL of a REST catalog, such as https://HOST/PATH;
    empty: catalog.db in path.
    """
    catalog_options: dict[str, str] = field(default_factory=dict)
    """Options of a REST catalog: warehouse, prefix, token, credential (ID:SECRET), scope and
    oauth2_server_uri.
    """
    storage: dict[str, str] = field(default_factory=dict)
    """Options for s3://: endpoint, region, access_key_id, secret_access_key and session_token; default:
    environment variables such as AWS_ACCESS_KEY_ID.
    """
    quarantine_name: str = "{topic}_quarantine"
    """The name of the quarantine table, for messages that the table of a topic cannot store; it is beside
    that table.
    """
    file_mb: int = 128
    """Upkeep merges small files of a partition up to this size in MB; 0: never."""
    keep_days: float = 7.0
    """Number of days for which earlier states of a table remain readable; upkeep removes older ones."""
    orphan_age: str = "3 d"
    """Upkeep deletes files that no retained state contains and that are older than this: a time such as "90
    min", "12 h" or "3 d", at least "72 min".
    """
    renamed: ClassVar[Mapping[str, str]] = {"orphan_days": 'orphan_age = "{} d"'}
    """Former keys, with their replacements; ``{}`` stands for the value."""

    def __post_init__(self) -> None:
        if not self.topics and not self.pattern:
            raise ValueError("topics or pattern must be set")
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
                "quarantine_name must consist of letters, digits, _, - and at most one {topic}, and must not "
                f"be empty or {{topic}} alone; it is {self.quarantine_name!r}"
            )
        if self.file_mb < 0 or self.keep_days < 0:
            raise ValueError(
                f"file_mb and keep_days must be 0 or more, not {self.file_mb} and {self.keep_days}"
            )
        if _seconds("orphan_age", self.orphan_age) < _seconds("orphan_age", _LEAST_ORPHAN_AGE):
            raise ValueError(f'orphan_age must be at least "{_LEAST_ORPHAN_AGE}", not {self.orphan_age!r}')

    def _check_storage(self) -> None:
        check_access(self.path, self.storage, self.catalog, self.catalog_options)
        if self.catalog and self.format != "iceberg":
            raise ValueError(
                "catalog requires format = 'iceberg', because tables of Delta Lake have no catalog; "
                "remove catalog"
            )
        if self.path.startswith(S3) and self.format == "iceberg" and not self.catalog:
            raise ValueError("catalog is required for Iceberg tables at s3://: a file, or a REST catalog")

    @property
    def has_rest_catalog(self) -> bool:
        """Whether ``catalog`` is the URL of a REST catalog."""
        return is_address(self.catalog)

    @property
    def catalog_place(self) -> str:
        """The path of the file, or the URL, of the catalog of Iceberg tables."""
        return self.catalog or f"{self.path}/{_CATALOG_FILE}"

    @property
    def may_have_tables(self) -> bool:
        """Whether tables can exist; if not, looking for them would only create an empty catalog file."""
        return self.format == "delta" or self.has_rest_catalog or Path(self.catalog_place).exists()

    def keep_up(self, spark: SparkSession, table: OpenTable) -> TableUpkeep:
        """Runs upkeep on a table with the settings of this section.

        :raises TableError: the table cannot be used
        """
        keep = timedelta(days=self.keep_days)
        orphans = timedelta(seconds=_seconds("orphan_age", self.orphan_age))
        return maintain(spark, table, self.file_mb << 20, keep, orphans)


@dataclass(frozen=True)
class TableConfig(TablesSection):
    mode: Literal["append", "upsert"] = "append"
    """append: each message becomes a row; upsert: each key has the row of its last message, or no row if that
    message is empty.
    """
    buckets: int = 16
    """Number of parts of a table with mode = "upsert", by a hash of the key; a batch rewrites the parts of
    its keys.
    """
    late_hours: float = 24.0
    """With mode = "upsert": maximum time in hours from the publishing of a message to its arrival. Deletions
    are remembered for this time, so that an earlier message of another partition does not create the row
    again.
    """
    on_error: Literal["stop", "quarantine"] = "stop"
    """stop: a message that the table cannot store ends the run; quarantine: the message goes to the
    quarantine table.
    """
    partition_by: tuple[str, ...] = ()
    """The partitioning: elements such as day(__publishTime), hour(__eventTime), bucket(16, __key), or the
    name of a column; empty: no partitions."""
    trigger: str = ""
    """Interval between the starts of rounds, such as "30 s", "5 min" or "1 h"; each round adds all present
    messages. Empty: only one round."""
    maintain_every: int = 0
    """Number of batches of a table after which its upkeep runs, as in table-maintain; 0: never."""
    metrics_port: int = 0
    """The port on which the driver answers GET /metrics while the pipeline runs; 0: no metrics are served."""
    max_rows_per_batch: int = 1_000_000
    """Maximum number of messages that are committed together."""
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
            raise ValueError(
                f"options: {min(both)} has no effect with on_error = 'quarantine'; remove this option"
            )
        if self.mode == "upsert" and self.partition_by:
            raise ValueError(
                "partition_by requires mode = 'append', because tables with mode = "
                "'upsert' have buckets; remove partition_by"
            )
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
    """Converts the time in the value of a key to seconds.

    :raises ValueError: the text is not a time above 0
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?(s|min|h|d)", text)
    if found is None or not float(found[1]):
        raise ValueError(f'{name} must be a time such as "30 s", "5 min", "1 h" or "3 d", not {text!r}')
    return float(found[1]) * _SECONDS[found[2]]


def is_address(catalog: str | None) -> bool:
    """Whether the value of ``catalog`` is the URL of a REST catalog, and not a file."""
    return (catalog or "").startswith(("http://", "https://"))


def check_access(
    path: str, storage: Mapping[str, str], catalog: str | None, catalog_options: Mapping[str, str]
) -> None:
    """Checks the options for a folder and a catalog in a section.

    :raises ValueError: an option does not exist, or has no effect
    """
    unknown = sorted(set(storage) - set(ACCESS_OPTIONS))
    if unknown:
        raise ValueError(f"storage has no option {unknown[0]!r}; use {', '.join(ACCESS_OPTIONS)}")
    if storage and not path.startswith(S3):
        raise ValueError(f"storage requires tables at s3://, but path is {path}; remove storage")
    unknown = sorted(set(catalog_options) - set(CATALOG_OPTIONS))
    if unknown:
        raise ValueError(f"catalog_options has no option {unknown[0]!r}; use {', '.join(CATALOG_OPTIONS)}")
    if catalog_options and not is_address(catalog):
        raise ValueError("catalog_options requires a REST catalog; set catalog to its URL")


def is_namespace(name: str) -> bool:
    return "://" not in name and name.count("/") == 1


def _check_name(name: str) -> None:
    """Checks the name of a topic or a namespace.

    :raises ValueError: the text is not such a name
    """
    if is_namespace(name):
        return
    try:
        topic = TopicName.parse(name)
    except InvalidName as error:
        raise ValueError(f"topics: {error}") from error
    if topic.domain.value != "persistent":
        raise ValueError(
            f"topics: {name!r} is a non-persistent topic, whose messages are not stored; "
            "use a persistent topic"
        )


def place_of(topic: str) -> tuple[str, ...]:
    """Returns the tenant, the namespace and the topic, as names of folders and tables."""
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
            f"format = {config.format!r} requires a library ({error}): {install_extra('lake')}"
        ) from error


def folder_of(config: TablesSection, topic: str) -> TableFolder:
    """Returns the folder of a topic's table."""
    return TableFolder("/".join((config.path, *place_of(topic))), config.storage)


def opened(config: TablesSection, topic: str, *, is_quarantine: bool = False) -> OpenTable:
    """Returns the object for a topic's table, which need not exist; creates the catalog file of Iceberg
    tables.

    :param is_quarantine: whether to return the topic's quarantine table instead of its main table
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
    """Returns the object for an Iceberg table, which need not exist.

    :param place: the name of the table in the catalog
    :param catalog: a file, which is created if it does not exist, or the address of a REST catalog
    :raises TableError: the REST catalog cannot be used
    :raises ImportError: the library is missing
    """
    from magnetar.spark.pipelines.table_iceberg import IcebergFormat, catalog_in, rest_catalog

    options = folder.iceberg_options()
    if is_address(catalog):
        return IcebergFormat(rest_catalog(catalog, options, catalog_options), place, folder)
    return IcebergFormat(catalog_in(catalog, options), place, folder)
