"""``magnetar translate-positions``: translates stored message ids of exported topics."""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.exit_codes import FAILED, MISUSED, SUCCEEDED

if TYPE_CHECKING:
    from magnetar.exporting.mapping import Mapping

_OFFSETS = "offsets"
_HEAD_LINES = 2
"""Number of lines before the offsets in an offset file of a Spark checkpoint: the version, and Spark's
metadata.
"""


def add_translate_positions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "translate-positions",
        help="translate message ids with the mapping of an export",
        description="Translates message ids that applications stored before magnetar export-ledgers moved "
        "the topics: ids on the command line, or all ids in a Spark checkpoint.",
    )
    parser.add_argument(
        "--mapping",
        type=Path,
        required=True,
        metavar="FILE",
        help="file with the mapping that export-ledgers wrote",
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="DIR",
        help="directory with the checkpoint of a Spark query; it is not changed",
    )
    parser.add_argument("--to", type=Path, metavar="DIR", help="new directory for the translated checkpoint")
    parser.add_argument(
        "topic",
        nargs="?",
        metavar="TOPIC",
        help="topic to which the message ids belong; for a partitioned topic, the name of the partition",
    )
    parser.add_argument(
        "positions",
        nargs="*",
        metavar="ID",
        help="message id: LEDGER:ENTRY, LEDGER:ENTRY:INDEX, or a serialized id in Base64",
    )


def run_translate_positions(parsed: argparse.Namespace) -> int:
    """Runs ``magnetar translate-positions``; returns the exit code: 0 all ids were translated, 1 some were
    not, 2 wrong usage.
    """
    from magnetar.exporting.mapping import Mapping, NotTranslated
    from magnetar.naming.name_rules import InvalidName

    if (parsed.checkpoint is None) != (parsed.to is None) or bool(parsed.checkpoint) == bool(
        parsed.positions
    ):
        sys.stderr.write(
            "magnetar: nothing to translate; give TOPIC and message ids, or --checkpoint and --to\n"
        )
        return MISUSED
    try:
        with parsed.mapping.open(encoding="utf-8") as file:
            mapping = Mapping.parse(file)
        if parsed.checkpoint is not None:
            _translate_checkpoint(mapping, parsed.checkpoint, parsed.to)
            return SUCCEEDED
        for text in parsed.positions:
            sys.stdout.write(_translated(mapping, parsed.topic, text) + "\n")
    except (NotTranslated, InvalidName, OSError, UnicodeDecodeError) as error:
        sys.stderr.write(f"magnetar: cannot translate: {error}\n")
        return FAILED
    return SUCCEEDED


def _translated(mapping: Mapping, topic: str, text: str) -> str:
    """Translates a message id of a topic.

    :raises NotTranslated: the text is not a message id, or the mapping does not contain the id
    """
    from magnetar.client.exceptions import InvalidMessage
    from magnetar.client.message_id import MessageId
    from magnetar.exporting.mapping import NotTranslated
    from magnetar.naming.topic_name import TopicName

    name = str(TopicName.parse(topic))
    if ":" in text:
        ledger, entry, *index = _numbers(text)
        return ":".join(map(str, (*mapping.message(name, ledger, entry), *index)))
    try:
        found = MessageId.deserialize(base64.b64decode(text, validate=True))
    except (InvalidMessage, ValueError) as error:
        raise NotTranslated(f"{text!r} is not a message id: {error}") from error
    if found.partition() >= 0:
        name = str(TopicName.parse(topic).partition(found.partition()))
    data = found.to_wire()
    data.ledgerId, data.entryId = mapping.message(name, *found.position)
    if data.HasField("first_chunk_message_id"):
        first = data.first_chunk_message_id
        first.ledgerId, first.entryId = mapping.message(name, first.ledgerId, first.entryId)
    return base64.b64encode(data.SerializeToString()).decode()


def _numbers(text: str) -> list[int]:
    from magnetar.exporting.mapping import NotTranslated

    parts = text.split(":")
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() for part in parts):
        raise NotTranslated(f"{text!r} is not a message id; use LEDGER:ENTRY, LEDGER:ENTRY:INDEX or Base64")
    return [int(part) for part in parts]


def _translate_checkpoint(mapping: Mapping, source: Path, target: Path) -> None:
    """Copies the checkpoint of a Spark query, and translates the offsets in the copy.

    :raises NotTranslated: the directory is not a checkpoint, or contains positions that the mapping does not
        contain
    :raises OSError: a file cannot be read or written, or the target exists
    """
    from magnetar.exporting.mapping import NotTranslated

    if not (source / _OFFSETS).is_dir():
        raise NotTranslated(
            f"{source} is not a Spark checkpoint: it has no directory {_OFFSETS}; give the directory of "
            "checkpointLocation"
        )
    files = [each for each in sorted((source / _OFFSETS).iterdir()) if each.name.isdigit()]
    translated = {each.name: _translated_offsets(mapping, each) for each in files}
    # Spark keeps checksums next to its files, and refuses files that do not match.
    offsets_sums = shutil.ignore_patterns(".*.crc")

    def without_sums(folder: str, names: list[str]) -> set[str]:
        return offsets_sums(folder, names) if Path(folder) == source / _OFFSETS else set()

    shutil.copytree(source, target, ignore=without_sums)
    for name, text in translated.items():
        (target / _OFFSETS / name).write_text(text, "utf-8")
    sys.stdout.write(f"{len(translated)} batches of {source} were translated to {target}\n")


def _translated_offsets(mapping: Mapping, path: Path) -> str:
    lines = path.read_text("utf-8").split("\n")
    return "\n".join(
        [*lines[:_HEAD_LINES], *(_translated_line(mapping, line) for line in lines[_HEAD_LINES:])]
    )


def _translated_line(mapping: Mapping, line: str) -> str:
    """Translates one line of an offset file, which is the offset of one source of the Spark query; the offset
    of a source that does not read topics remains unchanged.

    :raises InvalidName: the offset contains an invalid topic name
    """
    from magnetar.naming.topic_name import TopicName

    try:
        offset = json.loads(line)
    except ValueError:
        return line
    if not isinstance(offset, dict) or not isinstance(offset.get("topics"), dict):
        return line
    for topic, each in offset["topics"].items():
        # An edited checkpoint may have short names, which the source accepts.
        name = str(TopicName.parse(topic))
        if name in mapping.topics:
            offset["topics"][topic] = _translated_topic(mapping, name, each)
    return json.dumps(offset, separators=(",", ":"))


def _translated_topic(mapping: Mapping, topic: str, value: Any) -> Any:
    from magnetar.exporting.mapping import NotTranslated

    def place(text: str) -> str:
        ledger, entry, *index = _numbers(text)
        return ":".join(map(str, mapping.place(topic, ledger, entry, *(index or [0]))))

    if isinstance(value, str):
        return place(value)
    try:
        found = {**value, "next": place(value["next"])}
        if "from" in value:
            found["from"] = place(value["from"])
        if "splits" in value:
            found["splits"] = [place(each) for each in value["splits"]]
    except (KeyError, TypeError, AttributeError) as error:
        raise NotTranslated(
            f"the offset of {topic} was not written by Magnetar's Spark source and cannot be translated"
        ) from error
    return found
