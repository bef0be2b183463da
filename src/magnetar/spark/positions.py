"""Positions in topics, and the human-readable JSON form of stream offsets.

    {"subscription": "spark-1f…", "turn": 3, "topics": {
        "persistent://public/default/orders-partition-0": {
            "from": "11:750:0", "next": "12:345:0", "splits": ["11:900:0"]}}}

``next`` is the position of the next message to read, and ``from`` is the ``next`` of the previous offset.
``splits`` are the ends of the ledgers between ``from`` and ``next``. They are recorded when the offset is
created, so that a repeated batch is planned only from its offsets, whichever ledgers exist at that time.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from magnetar.client.exceptions import InvalidMessage
from magnetar.client.message_id import MessageId
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.topic_name import TopicName
from magnetar.spark.errors import InvalidPlace

__all__ = ["EARLIEST", "LATEST", "Offset", "Place", "TopicOffset", "parse_message_id"]


class Place(NamedTuple):
    """The position of the next message to read: ledger id, entry id and batch index; positions are ordered
    like messages.
    """

    ledger: int
    entry: int
    batch_index: int = 0

    def __str__(self) -> str:
        return f"{self.ledger}:{self.entry}:{self.batch_index}"

    @property
    def position(self) -> tuple[int, int]:
        """The position as (ledger id, entry id), without the batch index."""
        return self.ledger, self.entry

    @staticmethod
    def parse(text: str) -> Place:
        """Parses ``ledger:entry`` or ``ledger:entry:index``.

        :raises InvalidPlace: the text has neither form
        """
        parts = text.split(":")
        try:
            numbers = [int(part) for part in parts]
        except ValueError:
            numbers = []
        if len(numbers) not in (2, 3) or min(numbers) < 0:
            raise InvalidPlace(
                f"{text!r} is not a position; use a form like '12:345:0' (ledger, entry, batch index)"
            )
        return Place(*numbers)


EARLIEST = Place(-1, -1, 0)
"""The position before all messages of a topic."""
LATEST = Place((1 << 63) - 1, 0, 0)
"""Stands for the position after all messages that a topic contains when the position is used."""


def parse_message_id(text: str) -> tuple[int, int, int]:
    """Parses ``ledger:entry[:index]``, or a serialized id in Base64; returns ledger id, entry id and batch
    index (-1: the whole entry).

    :raises InvalidPlace: the text has neither form
    """
    if ":" in text:
        place = Place.parse(text)
        return place.ledger, place.entry, place.batch_index if text.count(":") == 2 else -1
    try:
        found = MessageId.deserialize(base64.b64decode(text, validate=True))
    except (binascii.Error, InvalidMessage, ValueError) as error:
        raise InvalidPlace(f"{text!r} is not a message id: {error}") from error
    return found.ledger_id(), found.entry_id(), found.batch_index()


@dataclass(frozen=True)
class TopicOffset:
    """The progress of a query in a topic without partitions, or in a partition."""

    next: Place
    splits: tuple[Place, ...] = ()
    """Ends of ledgers between the previous offset and this one, in order."""
    begin: Place | None = None
    """The ``next`` of the previous offset, or the end of lost messages; None: not recorded."""


@dataclass(frozen=True)
class Offset:
    """The progress of a query, which Spark stores in its checkpoint."""

    topics: Mapping[str, TopicOffset]
    subscription: str = ""
    """The subscription of the query; empty: no subscription."""
    turn: int = 0
    """Number of the batch; if limits do not suffice for all topics, it determines which topics come first."""
    extra: Mapping[str, object] = field(default_factory=dict)
    """Additional data in the JSON, which is not read back."""

    def to_json(self) -> dict[str, object]:
        """Returns the JSON object for Spark; equal offsets have equal JSON."""
        topics = {
            name: {
                **({} if each.begin is None else {"from": str(each.begin)}),
                "next": str(each.next),
                "splits": [str(split) for split in each.splits],
            }
            for name, each in sorted(self.topics.items())
        }
        return {"subscription": self.subscription, "turn": self.turn, "topics": topics, **self.extra}

    @staticmethod
    def from_json(value: object) -> Offset:
        """Returns the offset from the result of :meth:`to_json`, or from its text. Missing fields have their
        defaults.

        :raises InvalidPlace: the value is not an offset; the error text names the field
        """
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError as error:
                raise InvalidPlace(f"the offset is not JSON: {error}") from error
        if not isinstance(value, dict) or not isinstance(value.get("topics"), dict):
            raise InvalidPlace(f"the offset has no topics: {value!r}")
        topics = {_topic(name): _topic_offset(name, each) for name, each in value["topics"].items()}
        subscription, turn = value.get("subscription", ""), value.get("turn", 0)
        if not isinstance(subscription, str) or not isinstance(turn, int):
            raise InvalidPlace(f"an offset's 'subscription' must be a string, and 'turn' a number: {value!r}")
        return Offset(topics, subscription, turn)


def _topic(name: str) -> str:
    try:
        return str(TopicName.parse(name))
    except InvalidName as error:
        raise InvalidPlace(f"the offset of {name!r} is invalid: {error}") from error


def _topic_offset(name: str, value: object) -> TopicOffset:
    if isinstance(value, str):
        value = {"next": value}
    if not isinstance(value, dict) or not isinstance(value.get("next"), str):
        raise InvalidPlace(f"the offset of {name} has no 'next'")
    splits = value.get("splits", [])
    if not isinstance(splits, list) or not all(isinstance(each, str) for each in splits):
        raise InvalidPlace(f"the splits in the offset of {name} must be a list of positions")
    found = tuple(Place.parse(each) for each in splits)
    if list(found) != sorted(found):
        raise InvalidPlace(f"the splits in the offset of {name} are out of order")
    begin = value.get("from")
    if not isinstance(begin, str | None):
        raise InvalidPlace(f"'from' in the offset of {name} must be a position")
    return TopicOffset(Place.parse(value["next"]), found, None if begin is None else Place.parse(begin))
