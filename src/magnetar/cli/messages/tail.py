"""``magnetar tail TOPIC``."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

from magnetar.cli.messages.filters import MessageFilter
from magnetar.cli.messages.places import Start
from magnetar.cli.messages.reading import behind, followed, last, to_the_end
from magnetar.cli.messages.run import Ends, run
from magnetar.cli.refused import Refused
from magnetar.client.message import Message


def run_tail(parsed: argparse.Namespace) -> int:
    return run(parsed, _tail)


def _tail(ends: Ends, parsed: argparse.Namespace) -> None:
    if parsed.until is not None and parsed.until > time.time() * 1000:
        raise Refused("--until must be a time in the past")
    follow = not parsed.no_follow and parsed.until is None
    start = parsed.start or Start(end="latest" if follow else "earliest")
    wanted = MessageFilter(parsed.key, parsed.properties, start.time_ms or 0, parsed.until)
    write = ends.printer(parsed)
    partitions = ends.client.get_topic_partitions(parsed.topic)
    if start.position is not None and len(partitions) > 1:
        raise Refused("LEDGER:ENTRY refers to one partition; name that partition")
    if parsed.last is not None:
        found = _last(ends, partitions, parsed.last, wanted, follow=follow)
    elif follow:
        found = followed(ends, parsed.topic, start)
    else:
        found = to_the_end(ends, partitions, start)
    for message in found:
        if wanted.has(message):
            write(message)


def _last(
    ends: Ends, partitions: Sequence[str], number: int, wanted: MessageFilter, *, follow: bool
) -> Iterator[Message]:
    if follow and len(partitions) > 1:
        raise Refused(
            "the last messages of several partitions cannot be followed; use --no-follow or name "
            "one partition"
        )
    each = [last(ends, partition, number, wanted) for partition in partitions]
    found = sorted((message for messages, _ in each for message in messages), key=Message.publish_timestamp)
    yield from found[-number:]
    if follow:
        yield from behind(ends, partitions[0], each[0][1])
