"""The options of ``format("pulsar")``, with the JVM connector's case-insensitive names, in the table
``_KNOWN``. Unknown, contradictory and unsupported options are refused by name, before any request to the
cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.spark.access import (
    ACCESS,
    CLIENT,
    PRODUCER,
    READER,
    QueryAccess,
    access_of,
    is_of_access,
    is_of_offload,
    offload_of,
    passed_through,
)
from magnetar.spark.errors import InvalidOption

__all__ = ["QueryOptions"]

_MAX = (1 << 63) - 1


@dataclass(frozen=True)
class QueryOptions:
    """The options of a query; created by :meth:`parse`."""

    service_url: str
    admin_url: str
    topic: str = ""
    """The name of a topic; empty: ``topics`` or ``topics_pattern`` is set."""
    topics: tuple[str, ...] = ()
    """The full names of the topics in ``topic`` or ``topics``."""
    topics_pattern: str = ""
    """``tenant/namespace/REGEX``, or only ``REGEX`` for public/default: the expression must match the whole
    local name of a topic.
    """
    starting_offsets: str = ""
    """The start position: ``earliest``, ``latest`` or JSON; empty: earliest for batches, latest for
    streams.
    """
    ending_offsets: str = ""
    """The end position, in the form of ``starting_offsets``; empty: latest."""
    starting_time: int | None = None
    """Lowest publish time, inclusive, in milliseconds since 1970; None: not set."""
    ending_time: int | None = None
    """End of the publish times, exclusive, in milliseconds since 1970; None: not set."""
    subscription_prefix: str = "spark-pulsar"
    predefined_subscription: str = ""
    """The name of an existing subscription that retains unread messages; empty: the query creates its own."""
    max_bytes_per_trigger: int | None = None
    """Maximum size of stored entries per trigger, in bytes; None: no limit. At least one message is read."""
    max_rows_per_trigger: int | None = None
    max_entries_per_partition: int = 100_000
    """Maximum number of entries in one Spark partition."""
    poll_timeout_ms: int = 120_000
    """Maximum time that a task waits for the next entry before it fails, in milliseconds."""
    fail_on_data_loss: bool = True
    allow_different_topic_schemas: bool = False
    waiting_for_non_existed_topic: bool = False
    """Whether to wait for a missing topic instead of failing."""
    read_mode: str = "broker"
    """``broker``: read through brokers; ``segments``: read the files of an embedded ledger store."""
    segments_directory: str = ""
    """The broker's data directory, for ``read.mode=segments``."""
    offload: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings for reading offloaded ledgers directly from tiered storage, by the names of broker settings;
    empty: offloaded ledgers are read through the broker.
    """
    value_format: str = "schema"
    """``schema``: the columns are those of the topic's schema; ``bytes``: the payload is a single column
    ``value``.
    """
    mode: str = "PERMISSIVE"
    """Handling of malformed messages: PERMISSIVE writes them to ``quarantine_path``, FAILFAST fails the
    query.
    """
    quarantine_path: str = ""
    """A folder for malformed messages; empty: a malformed message fails the query."""
    delivery: str = ""
    """The guarantee of writing: ``exactly-once``, ``transactional`` or ``at-least-once``; empty: exactly-once
    for streams and for batches with a ``write_id``, otherwise at-least-once.
    """
    transaction_timeout_ms: int = 600_000
    """Time after which the coordinator aborts the transaction of a batch, in milliseconds."""
    staging_path: str = ""
    """The folder for staged messages; empty: a folder below the checkpoint."""
    new_staging: bool = False
    """Whether a query that has run before can start with an empty staging folder."""
    write_id: str = ""
    """A name for a batch write: several writes with the same name take effect only once."""
    deduplication: str = "auto"
    """For topics without deduplication, ``auto`` enables it, and ``require`` refuses to write."""
    value_encoding: str = ""
    """The encoding of values: ``bytes``, ``json``, ``avro`` or ``primitive``; empty: chosen by the topic's
    schema or the columns.
    """
    value_schema: str = ""
    """``register``: the producer declares a schema to the broker; ``none``: the producer declares no schema;
    empty: the producer declares a schema if the encoding requires it.
    """
    checkpoint_location: str = ""
    """Spark's own option, which Spark passes to streaming sinks."""
    path: str = ""
    """The argument of ``load(path)`` and ``start(path)``, an alternative to ``topic``."""
    access: QueryAccess = field(default_factory=QueryAccess)
    """Credentials and TLS settings."""
    client: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``magnetar.client.blocking.Client``, from ``pulsar.client.*`` and ``access``."""
    producer: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``create_producer``, from ``pulsar.producer.*``."""
    reader: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``create_reader``, from ``pulsar.reader.*``."""

    @staticmethod
    def parse(given: Mapping[str, str]) -> QueryOptions:
        """Parses the options; refuses values that are invalid or contradict each other.

        :raises InvalidOption: an option is unknown, out of range, missing, or contradicts another
        """
        values: dict[str, Any] = {"client": {}, "producer": {}, "reader": {}}
        access: dict[str, tuple[str, str]] = {}
        offload: dict[str, str] = {}
        for name, text in given.items():
            key = name.lower()
            if is_of_access(name, text, access) or is_of_offload(name, text, offload):
                continue
            if key in _KNOWN:
                attribute, parse = _KNOWN[key]
                values[attribute] = parse(name, text)
            elif not passed_through(name, text, values):
                raise InvalidOption(_REFUSED.get(key) or f"unknown option {name!r}")
        for needed, option in (("service_url", "service.url"), ("admin_url", "admin.url")):
            if not values.get(needed):
                raise InvalidOption(f"the option {option!r} is required, but not set")
        values[ACCESS] = access_of(access)
        values["offload"] = offload_of(offload)
        values["client"].update(values[ACCESS].client_options())
        named = _named_topics(values)
        values["topics"] = named
        values["topic"] = named[0] if len(named) == 1 else ""
        needs_schema = values.get("value_encoding") in ("avro", "primitive")
        values["value_schema"] = values.get("value_schema") or ("register" if needs_schema else "none")
        options = QueryOptions(**values)
        _check(options)
        return options

    def check_reading(self) -> None:
        """Checks the options of a query that reads.

        :raises InvalidOption: no topic is given
        """
        if not self.topics and not self.topics_pattern:
            raise InvalidOption("one of the options 'topic', 'topics' and 'topicsPattern' is required")


def _named_topics(values: dict[str, Any]) -> tuple[str, ...]:
    ways = [name for name in ("topic", "topics", "topics_pattern", "path") if values.get(name)]
    if len(ways) > 1:
        raise InvalidOption(
            "only one of the options 'topic', 'topics', 'topicsPattern' and a path can be set"
        )
    if values.get("path"):
        return (_topic_name("path", values["path"]),)
    if values.get("topic"):
        return (values["topic"],)
    return tuple(values.get("topics", ()))


def _check(options: QueryOptions) -> None:
    if options.starting_time is not None and options.starting_offsets:
        raise InvalidOption("only one of 'startingOffsets' and 'startingTime' can be set")
    if options.ending_time is not None and options.ending_offsets:
        raise InvalidOption("only one of 'endingOffsets' and 'endingTime' can be set")
    if options.read_mode == "segments" and not options.segments_directory:
        raise InvalidOption(
            "'read.mode=segments' requires 'segments.directory', the data directory of the store"
        )
    if options.value_schema == "none" and options.value_encoding in ("avro", "primitive"):
        raise InvalidOption(
            f"'value.encoding={options.value_encoding}' requires 'value.schema=register': without a "
            "schema, the values cannot be read"
        )
    if options.value_schema == "register" and options.value_encoding == "bytes":
        raise InvalidOption("'value.schema=register' cannot be used with 'value.encoding=bytes'")
    if options.mode == "FAILFAST" and options.quarantine_path:
        raise InvalidOption("'quarantine.path' has no effect with 'mode=FAILFAST'")


def _text(name: str, text: str) -> str:
    return text


def _url(name: str, text: str) -> str:
    scheme = text.partition("://")[0].lower()
    wanted, secured = ("pulsar", "pulsar+ssl") if name.lower() == "service.url" else ("http", "https")
    if scheme not in (wanted, secured):
        raise InvalidOption(f"{name!r} must have the form {wanted}://host:port, not {text!r}")
    return text.rstrip("/")


def _topic_name(name: str, text: str) -> str:
    try:
        topic = TopicName.parse(text.strip())
    except InvalidName as error:
        raise InvalidOption(f"{name!r}: {error}") from error
    if topic.domain.value != "persistent":
        raise InvalidOption(
            f"{name!r}: {text!r} is a non-persistent topic, whose messages are not "
            "stored; use a persistent topic"
        )
    return str(topic)


def _topic_names(name: str, text: str) -> tuple[str, ...]:
    names = tuple(_topic_name(name, each) for each in text.split(",") if each.strip())
    if not names or len(set(names)) != len(names):
        raise InvalidOption(f"{name!r} must be different topics separated by commas")
    return names


def _pattern(name: str, text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidOption(f"{name!r} is not a regular expression: {error}") from error
    return text


def _number(low: int, high: int = _MAX) -> Callable[[str, str], int]:
    def parse(name: str, text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            wanted = f"of {low} or more" if high == _MAX else f"from {low} to {high}"
            raise InvalidOption(f"{name!r} must be a whole number {wanted}, not {text!r}")
        return number

    return parse


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidOption(f"{name!r} must be true or false, not {text!r}")
    return text.lower() == "true"


def _one_of(*words: str) -> Callable[[str, str], str]:
    def parse(name: str, text: str) -> str:
        for word in words:
            if word.lower() == text.lower():
                return word
        raise InvalidOption(f"{name!r} must be one of {', '.join(words)}, not {text!r}")

    return parse


def _offsets(name: str, text: str) -> str:
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not text.lstrip().startswith("{"):
        raise InvalidOption(f"{name!r} must be earliest, latest or JSON, not {text!r}")
    return text


_KNOWN: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "service.url": ("service_url", _url),
    "admin.url": ("admin_url", _url),
    "topic": ("topic", _topic_name),
    "topics": ("topics", _topic_names),
    "topicspattern": ("topics_pattern", _pattern),
    "path": ("path", _text),
    "startingoffsets": ("starting_offsets", _offsets),
    "endingoffsets": ("ending_offsets", _offsets),
    "startingtime": ("starting_time", _number(0)),
    "endingtime": ("ending_time", _number(0)),
    "subscriptionprefix": ("subscription_prefix", _text),
    "predefinedsubscription": ("predefined_subscription", _text),
    "maxbytespertrigger": ("max_bytes_per_trigger", _number(1)),
    "maxrowspertrigger": ("max_rows_per_trigger", _number(1)),
    "maxentriesperpartition": ("max_entries_per_partition", _number(1)),
    "polltimeoutms": ("poll_timeout_ms", _number(1)),
    "failondataloss": ("fail_on_data_loss", _truth),
    "allowdifferenttopicschemas": ("allow_different_topic_schemas", _truth),
    "waitingfornonexistedtopic": ("waiting_for_non_existed_topic", _truth),
    "read.mode": ("read_mode", _one_of("broker", "segments")),
    "segments.directory": ("segments_directory", _text),
    "value.format": ("value_format", _one_of("schema", "bytes")),
    "mode": ("mode", _one_of("PERMISSIVE", "FAILFAST")),
    "quarantine.path": ("quarantine_path", _text),
    "delivery": ("delivery", _one_of("exactly-once", "transactional", "at-least-once")),
    "transactiontimeoutms": ("transaction_timeout_ms", _number(1, _MAX // 1000)),
    "stagingdir": ("staging_path", _text),
    "newstaging": ("new_staging", _truth),
    "writeid": ("write_id", _text),
    "deduplication.enable": ("deduplication", _one_of("auto", "require")),
    "value.encoding": ("value_encoding", _one_of("bytes", "json", "avro", "primitive")),
    "value.schema": ("value_schema", _one_of("register", "none")),
    "checkpointlocation": ("checkpoint_location", _text),
}

_REFUSED = {
    "topic.schema.class": (
        "'topic.schema.class' is not supported: it names a Java class; columns come from the topic's schema"
    ),
    "usetls": "'useTls' is not supported; use pulsar+ssl:// in 'service.url'",
}

_ATTRIBUTES = {each.name for each in fields(QueryOptions)}
assert {attribute for attribute, _ in _KNOWN.values()} <= _ATTRIBUTES
assert {ACCESS, CLIENT, PRODUCER, READER} <= _ATTRIBUTES
