"""The mapping file, and what is translated by it: single ids, and a checkpoint of Spark."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from magnetar.cli.magnetar import main
from magnetar.client.message_id import MessageId
from magnetar.exporting.mapping import HEADER, Mapping, NotTranslated
from magnetar.exporting.stored_topics import NotExported
from magnetar.exporting.topic_export import MappedLedger
from magnetar.server.export_ledgers import MappingFile
from magnetar.spark.positions import Offset

TOPIC = "persistent://public/default/orders"
PART = f"{TOPIC}-partition-1"
LINES = (
    MappedLedger(TOPIC, 3, 30, -1),
    MappedLedger(TOPIC, 4, 99, 7),
    MappedLedger(TOPIC, 4, 40, 10),
    MappedLedger(TOPIC, 6, 60, 5),
    MappedLedger(PART, 5, 50, 2),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mapping"
    for lines in (LINES[:2], LINES[2:]):
        # A run that was cut short is followed by another one.
        kept = MappingFile(path)
        kept.keep(lines)
        kept.close()
    return path


def parsed(path: Path) -> Mapping:
    with path.open() as lines:
        return Mapping.parse(lines)


def test_the_last_line_of_a_ledger_counts(file: Path) -> None:
    mapping = parsed(file)
    assert mapping.topics == {TOPIC: [LINES[0], LINES[2], LINES[3]], PART: [LINES[4]]}
    assert file.read_text().count(HEADER) == 1


@pytest.mark.parametrize("half", ["", TOPIC, f"{TOPIC}\t4\t1"])
def test_half_a_line_that_a_full_disk_has_left_goes(file: Path, half: str) -> None:
    mapping = parsed(file)
    with file.open("a") as lines:
        lines.write(half)
    kept = MappingFile(file)
    kept.keep([MappedLedger(TOPIC, 7, 70, 1)])
    kept.close()
    mapping.topics[TOPIC].append(MappedLedger(TOPIC, 7, 70, 1))
    assert parsed(file) == mapping


def test_half_a_header_is_made_whole(tmp_path: Path) -> None:
    (tmp_path / "mapping").write_text(HEADER)
    MappingFile(tmp_path / "mapping").close()
    assert (tmp_path / "mapping").read_text() == f"{HEADER}\n"


def test_names_that_would_break_a_line(file: Path) -> None:
    odd = f'{TOPIC}\t\n\r"%09'
    mapping = parsed(file)
    kept = MappingFile(file)
    kept.keep([MappedLedger(odd, 1, 2, 3)])
    kept.close()
    assert parsed(file).topics == mapping.topics | {odd: [MappedLedger(odd, 1, 2, 3)]}


def test_messages(file: Path) -> None:
    mapping = parsed(file)
    assert mapping.message(TOPIC, 4, 9) == (40, 9)
    assert mapping.message(TOPIC, 4, -1) == (40, -1)
    assert mapping.message(TOPIC, 3, 77) == (30, 77)
    for ledger_id, entry_id in ((4, 10), (5, 0), (7, 0)):
        with pytest.raises(NotTranslated, match=f"had no message {ledger_id}:{entry_id}"):
            mapping.message(TOPIC, ledger_id, entry_id)
    with pytest.raises(NotTranslated, match="the mapping has no topic other"):
        mapping.message("other", 4, 0)


def test_places(file: Path) -> None:
    mapping = parsed(file)
    assert mapping.place(TOPIC, 4, 10, 0) == (40, 10, 0)
    assert mapping.place(TOPIC, 6, 2, 3) == (60, 2, 3)
    assert mapping.place(TOPIC, 5, 0, 0) == (60, 0, 0)
    assert mapping.place(TOPIC, 8, 0, 0) == (60, 5, 0)
    with pytest.raises(NotTranslated, match="the messages from 2:1 on had been deleted"):
        mapping.place(TOPIC, 2, 1, 0)


@pytest.mark.parametrize(
    "text",
    ["", "something else\n", f"{HEADER}\na\tb\n", f"{HEADER}\nt\t1\t2\tx\n", f'{HEADER}\n"t\t1\t2\t3\n'],
)
def test_what_is_no_mapping(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mapping"
    path.write_text(text)
    if text.startswith("something"):
        with pytest.raises(NotExported, match="is not a mapping file"):
            MappingFile(path)
    assert main(["translate-positions", "--mapping", str(path), TOPIC, "4:0"]) == 1
    assert "cannot translate" in capsys.readouterr().err


def test_ids_by_command(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def serialized(ledger_id: int, entry_id: int, partition: int) -> str:
        found = MessageId(partition, ledger_id, entry_id, 2)
        return base64.b64encode(found.serialize()).decode()

    arguments = ["translate-positions", "--mapping", str(file), "orders"]
    assert main([*arguments, "4:2", "6:1:3", serialized(4, 0, -1), serialized(5, 1, 1)]) == 0
    found = capsys.readouterr().out.split()
    assert found[:2] == ["40:2", "60:1:3"]
    ids = [MessageId.deserialize(base64.b64decode(text)) for text in found[2:]]
    assert [(each.position, each.batch_index(), each.partition()) for each in ids] == [
        ((40, 0), 2, -1),
        ((50, 1), 2, 1),
    ]
    for wrong in ("4", "4:x", "4:1:2:3", "9:9", "####"):
        assert main([*arguments, wrong]) == 1
    assert main(arguments) == 2
    assert main([*arguments, "4:2", "--checkpoint", "x", "--to", "y"]) == 2


def checkpoint(folder: Path) -> Path:
    """As Spark has one: offsets of two sources, of which the last batch is not finished."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    head = 'v1\n{"batchWatermarkMs":0}\n'
    first = {"subscription": "s", "turn": 1, "topics": {TOPIC: {"next": "4:3:1", "splits": []}}}
    second = {
        "subscription": "s",
        "turn": 2,
        "topics": {
            TOPIC: {"from": "4:3:1", "next": "6:5:0", "splits": ["4:10:0", "5:0:0"]},
            PART: "5:1:0",
            "persistent://public/default/stays": {"next": "1:1:0", "splits": []},
        },
        "extra": True,
    }
    for number, offset in enumerate((first, second)):
        (folder / "offsets" / str(number)).write_text(f'{head}{json.dumps(offset)}\n{{"file":"x"}}\n-')
        (folder / "offsets" / f".{number}.crc").write_bytes(b"sum")
    (folder / "commits" / "0").write_text("v1\n{}")
    (folder / "commits" / ".0.crc").write_bytes(b"sum")
    return folder


def test_a_checkpoint(file: Path, tmp_path: Path) -> None:
    source, target = checkpoint(tmp_path / "from"), tmp_path / "to"
    command = [
        "translate-positions",
        "--mapping",
        str(file),
        "--checkpoint",
        str(source),
        "--to",
        str(target),
    ]
    assert main(command) == 0
    assert sorted(each.name for each in (target / "offsets").iterdir()) == ["0", "1"]
    assert sorted(each.name for each in (target / "commits").iterdir()) == [".0.crc", "0"]
    head, more, first, other, rest = (target / "offsets" / "0").read_text().split("\n")
    assert (head, more, other, rest) == ("v1", '{"batchWatermarkMs":0}', '{"file":"x"}', "-")
    assert str(Offset.from_json(first).topics[TOPIC].next) == "40:3:1"
    second = json.loads((target / "offsets" / "1").read_text().split("\n")[2])
    assert second["extra"] is True
    topics = Offset.from_json(second).topics
    found = topics[TOPIC]
    assert (str(found.begin), str(found.next), [str(each) for each in found.splits]) == (
        "40:3:1",
        "60:5:0",
        ["40:10:0", "60:0:0"],
    )
    assert str(topics[PART].next) == "50:1:0"
    assert str(topics["persistent://public/default/stays"].next) == "1:1:0"
    # What is there is not written over.
    assert main(command) == 1


def test_a_checkpoint_that_was_edited(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, target = checkpoint(tmp_path / "from"), tmp_path / "to"
    path = source / "offsets" / "1"
    command = [
        "translate-positions",
        "--mapping",
        str(file),
        "--checkpoint",
        str(source),
        "--to",
        str(target),
    ]
    head = 'v1\n{"batchWatermarkMs":0}\n'
    for wrong in ({"orders": {"next": 4}}, {"orders": [4]}, {"": {"next": "4:3"}}):
        path.write_text(head + json.dumps({"topics": wrong}))
        assert main(command) == 1
        assert "cannot translate" in capsys.readouterr().err
    path.write_text(head + json.dumps({"topics": {"orders": {"next": "4:3"}}}))
    assert main(command) == 0
    found = Offset.from_json((target / "offsets" / "1").read_text().split("\n")[2])
    assert str(found.topics[TOPIC].next) == "40:3:0"


def test_a_checkpoint_that_cannot_go(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = checkpoint(tmp_path / "from")
    path = source / "offsets" / "1"
    path.write_text(path.read_text().replace("4:3:1", "1:0:0"))
    command = ["translate-positions", "--mapping", str(file), "--checkpoint"]
    assert main([*command, str(source), "--to", str(tmp_path / "to")]) == 1
    assert "the messages from 1:0 on had been deleted" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()
    assert main([*command, str(tmp_path), "--to", str(tmp_path / "to")]) == 1
    assert "is not a Spark checkpoint" in capsys.readouterr().err
