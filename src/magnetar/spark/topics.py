"""The topics of a query, its start and end positions, and the durable subscription of a stream. The
subscription protects unread messages from trimming. It stays one entry behind the read position, so that the
ledger at which a query continues always exists, even if the query has read all of it. If the ledger is
missing nevertheless, messages may be lost.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass

from magnetar.admin_client import AdminClient, Conflict, NotFound
from magnetar.client.exceptions import TopicNotFound
from magnetar.naming.topic_name import TopicName
from magnetar.spark.connection import Connection
from magnetar.spark.errors import InvalidPlace, SparkSourceError
from magnetar.spark.ledgers import Layout, layout_of
from magnetar.spark.positions import EARLIEST, LATEST, Offset, Place, parse_message_id

__all__ = [
    "TopicPositions",
    "ending_places",
    "hold",
    "layouts",
    "move",
    "starting_places",
    "topics_of",
]
_PATTERN = re.compile(r"(?:persistent://)?([^/]+)/([^/]+)/(.+)")
_PARTITION = re.compile(r"-partition-\d+$")
log = logging.getLogger(__name__)


def topics_of(connection: Connection) -> list[str]:
    """Returns the full names of the topics to read, with each partition of partitioned topics.

    :raises NotFound: the namespace of a pattern does not exist
    """
    options = connection.options
    if not options.topics_pattern:
        names = options.topics
    else:
        names = tuple(_matching(connection, options.topics_pattern))
    return sorted(part for name in names for part in _parts(connection, name))


def _parts(connection: Connection, name: str) -> list[str]:
    try:
        return connection.client.get_topic_partitions(name, create=False)
    except TopicNotFound:
        # Reading its ledgers reports this, or waits for the topic, as the options say.
        return [str(TopicName.parse(name))]


def _matching(connection: Connection, pattern: str) -> list[str]:
    parts = _PATTERN.fullmatch(pattern)
    tenant, namespace, local = parts.groups() if parts else ("public", "default", pattern)
    wanted = re.compile(local)
    there = connection.admin.partitioned_topics(f"{tenant}/{namespace}")
    there += connection.admin.topics(f"{tenant}/{namespace}")
    # Partitions are read as part of their topic, so that later ones are included.
    names = {_PARTITION.sub("", name) for name in there}
    return sorted(name for name in names if wanted.fullmatch(TopicName.parse(name).local))


def layouts(connection: Connection, topics: list[str]) -> dict[str, Layout]:
    """Returns the layout of each topic; missing topics are omitted if the options permit that.

    :raises SparkSourceError: a topic does not exist
    """
    found = {}
    for topic in topics:
        try:
            found[topic] = layout_of(connection.admin, topic)
        except NotFound as error:
            if not connection.options.waiting_for_non_existed_topic:
                raise SparkSourceError(
                    f"the topic {topic} does not exist; set waitingForNonExistedTopic=true to wait for it"
                ) from error
    return found


@dataclass(frozen=True)
class TopicPositions:
    """The start or end position of each topic."""

    default: Place | None
    """The position in topics that are not in ``by_topic``; None: ``by_topic`` must contain every topic."""
    by_topic: Mapping[str, Place]

    def of(self, topic: str) -> Place:
        """Returns the position in a topic.

        :raises InvalidPlace: there is no position for this topic
        """
        found = self.by_topic.get(topic, self.default)
        if found is None:
            raise InvalidPlace(f"the offsets have no topic {topic}")
        return found


def starting_places(connection: Connection, topics: list[str], default: Place) -> TopicPositions:
    """Returns the positions of ``startingOffsets`` or ``startingTime``.

    :param default: the position if neither option is set
    :raises InvalidPlace: a position is malformed, or belongs to another topic
    """
    options = connection.options
    if options.starting_time is not None:
        return _by_time(connection, topics, options.starting_time)
    return _places(options.starting_offsets, topics, default, ends=False)


def ending_places(connection: Connection, topics: list[str]) -> TopicPositions:
    """Returns the positions of ``endingOffsets`` or ``endingTime``; by default, the position after all
    present messages.
    """
    options = connection.options
    if options.ending_time is not None:
        return _by_time(connection, topics, options.ending_time)
    return _places(options.ending_offsets, topics, LATEST, ends=True)


def _by_time(connection: Connection, topics: list[str], time_ms: int) -> TopicPositions:
    found = {}
    for topic in topics:
        try:
            found[topic] = Place(*connection.admin.message_id_at(topic, time_ms))
        except NotFound:
            found[topic] = EARLIEST
    return TopicPositions(EARLIEST, found)


def _places(text: str, topics: list[str], default: Place, *, ends: bool) -> TopicPositions:
    if not text or text in _WORDS:
        return TopicPositions(_WORDS.get(text, default), {})
    try:
        value = json.loads(text)
    except ValueError as error:
        words = ", ".join(map(repr, _WORDS))
        raise InvalidPlace(f"{text[:200]!r} is neither {words} nor valid JSON: {error}") from error
    if isinstance(value, dict) and isinstance(value.get("topics"), dict):
        found = {topic: each.next for topic, each in Offset.from_json(value).topics.items()}
    elif isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
        found = {str(TopicName.parse(name)): _place(each, ends) for name, each in value.items()}
    else:
        raise InvalidPlace(f"offsets must be a JSON object of topics and message ids, not {text!r}")
    unknown = sorted(set(found) - set(topics))
    if unknown:
        raise InvalidPlace(f"the offsets have topics that this query does not read: {', '.join(unknown)}")
    return TopicPositions(None, found)


def _place(text: str, ends: bool) -> Place:
    """Parses a position of ``startingOffsets`` or ``endingOffsets``: the position of the first or of the last
    message to read, as in the JVM connector.

    :param ends: whether the text is the position of the last message to read
    """
    if text in _WORDS:
        return _WORDS[text]
    ledger, entry, index = parse_message_id(text)
    if not ends:
        if ledger < 0 or ledger == LATEST.ledger:
            # The serialized forms of the two ids without a ledger.
            return EARLIEST if ledger < 0 else LATEST
        return Place(ledger, max(0, entry), max(0, index))
    return Place(ledger, entry + 1) if index < 0 else Place(ledger, entry, index + 1)


_WORDS = {"earliest": EARLIEST, "latest": LATEST}


def hold(admin: AdminClient, topic: str, name: str, place: Place) -> None:
    """Creates the query's subscription, which retains all messages from ``place`` on.

    :raises AdminError: the broker refused the request
    """
    ledger, entry = _kept(place)
    try:
        admin.create_subscription(topic, name, ledger, entry)
    except Conflict:
        # Created by an earlier run of this query that ended late: it retains everything that is needed.
        log.info("%s: subscription %s already exists", topic, name)
    except NotFound as error:
        # The next read reports the missing topic.
        log.warning("%s: cannot create subscription %s: %s", topic, name, error)


def move(admin: AdminClient, topic: str, name: str, place: Place) -> None:
    """Moves the query's subscription forward, so that messages before ``place`` can be trimmed.

    :raises AdminError: the broker refused the request
    """
    ledger, entry = _kept(place)
    try:
        admin.reset_subscription(topic, name, ledger, entry)
    except NotFound as error:
        # The next check of the topic finds out whether anything was lost, and creates it again.
        log.warning("%s: cannot move subscription %s: %s", topic, name, error)


def _kept(place: Place) -> tuple[int, int]:
    if place.batch_index or not place.entry:
        return place.ledger, place.entry
    return place.ledger, place.entry - 1
