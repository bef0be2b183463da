"""``pulsar-client`` line for line beside Apache Pulsar's.

``client_lines.jsonl`` has a row for each command line: its exit code (null: it did not end within 12 s), and
what Apache Pulsar 4.0.8's own command printed against its own broker.
"""

from __future__ import annotations

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from server import Server

from magnetar.cli.pulsar_client import main

HERE = Path(__file__).parent
KEYS = HERE / "keys"
ROWS = [json.loads(row) for row in (HERE / "client_lines.jsonl").read_text("utf-8").splitlines()]
_OF_THE_MOMENT = (
    (re.compile(r"publishTime:\[\d+\]"), "publishTime:[TIME]"),
    (re.compile(r"message-id:\d+:\d+:-1(:0)?(?=,)"), "message-id:ID"),
    (re.compile(r"producer-name:standalone-\d+-\d+"), "producer-name:NAME"),
)


WAITING = {
    "consume cl-c -s times3 -stp 0 -etp 0": "there is no end that a message would be later than",
    "--listener-name none produce cl-a -m more": "there may be such a listener in a while",
    "read cl-n3 -m earliest": "nothing was sent in plain text",
}
"""What does not end, or has nothing to end with, and why."""
_AS_JSON = "values are JSON; Pulsar's names classes of Java, in the order of hashes"
_HEX = "hexadecimal is asked for; Pulsar's prints it with --pool-messages false only"
_PLAIN = "one flag without the other would send unencrypted messages; Pulsar's does"
_NO_WEBSOCKET = "addresses of WebSocket are refused"
_PAIR = '{"key": "k1", "value": "v1"}'
_ALL = (
    '{"n": null, "m": "x", "l": 5, "d": 1.5, "f": 2.0, "t": true, "y": "6162", "e": "B", "a": [1, 2], '
    '"p": {"k": "v"}, "r": {"z": 3}}'
)
_METADATA = (
    ", event-time:1970-01-01T00:00:00Z, message-id:ID, producer-name:NAME, sequence-id:0, "
    "replicated-from:null, redelivery-count:0, ordering-key:, schema-version:"
)


def _dump(digits: str, text: str) -> str:
    return f"00000000 {digits:48}{text}\n"


DIFFERENT: dict[str, tuple[str, list[str] | None]] = {
    "read cl-b -m earliest --hex": (_HEX, [_dump("78", "x")]),
    "consume cl-c -s hexed -p Earliest --hex": (_HEX, [_dump("61", "a")]),
    "read cl-e -m earliest --hex": (_HEX, [_dump("06 74 65 61 04", ".tea.")]),
    "read cl-k2 -m earliest --hex": (
        _HEX,
        [_dump("00 00 00 02 6B 31 00 00 00 02 76 31", "....k1....v1")],
    ),
    "read cl-f -m earliest --hex": (
        _HEX,
        [
            _dump("00 01 02 03 04 05 06 07 08 09 0A 0B 0C 0D 0E 0F", "." * 16)
            + "00000010 10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F ................\n"
            + f"00000020 {'20 21 22 23 24 25 26 27':48} !\"#$%&'\n"
        ],
    ),
    "read cl-b -m latest -i": ("the last message is included; Pulsar's waits for another", ["y"]),
    "read cl-b -m earliest -st string": ("text is what is printed anyway; Pulsar's fails", ["x"]),
    "consume cl-b -s auto -p Earliest -st auto_consume": (_AS_JSON, ["x"]),
    "read cl-d -m earliest -st auto_consume": (_AS_JSON, ['"héllo"']),
    "consume cl-d -s s -p Earliest -st auto_consume -mp": (_AS_JSON, [f'"héllo"{_METADATA}0']),
    "read cl-d2 -m earliest -st auto_consume": (_AS_JSON, ["héllo"]),
    "read cl-e -m earliest -st auto_consume": (_AS_JSON, ['{"name": "tea", "amount": 2}']),
    "consume cl-e -s s -p Earliest -st auto_consume": (_AS_JSON, ['{"name": "tea", "amount": 2}']),
    "read cl-e2 -m earliest -st auto_consume": (_AS_JSON, [_ALL]),
    "read cl-e2 -m earliest -st auto_consume --hex": (_AS_JSON, [_ALL]),
    "read cl-j -m earliest -st auto_consume": (
        _AS_JSON,
        ['{"name": "tea", "amount": 2, "in": {"z": 1.5}}'],
    ),
    "read cl-k -m earliest -st auto_consume": (_AS_JSON, [_PAIR]),
    "read cl-k2 -m earliest -st auto_consume": (_AS_JSON, [_PAIR]),
    "read cl-k3 -m earliest -n 2 -st auto_consume": (
        _AS_JSON,
        ['{"key": "filed", "value": "v1"}', '{"key": "filed", "value": "v2"}'],
    ),
    "read cl-k4 -m earliest -st auto_consume": (
        _AS_JSON,
        ['{"key": {"id": 1}, "value": {"name": "tea"}}'],
    ),
    "read cl-k5 -m earliest -st auto_consume": (_AS_JSON, ['{"key": "plain", "value": "v1"}']),
    "read cl-k9 -m earliest -st auto_consume": (_AS_JSON, ['{"key": null, "value": "v1"}']),
    "read cl-k10 -m earliest -st auto_consume": (_AS_JSON, ['{"key": null, "value": "v1"}']),
    "produce cl-k6 -kvet none -k plain -m v1": ("none is a value that there is; Pulsar's refuses it", []),
    "read cl-k6 -m earliest": ("so there is a message", ["v1"]),
    "produce cl-k7 -kvet inline -kvk k1 -kvkf {dir}/key.txt -m v1": (
        "two keys are one too many; Pulsar's takes one of them",
        None,
    ),
    "produce cl-f -f {dir}/missing.bin": ("a file that is not there is an error; Pulsar's says 0", None),
    "read cl-n -m earliest -ekv {private} -mp": (
        "how a content was encrypted is not printed; Pulsar's prints addresses of objects",
        [f"secret{_METADATA}"],
    ),
    "produce cl-n3 -ekn app.key -m plain": (_PLAIN, None),
    "produce cl-n3 -ekv {public} -m plain": (_PLAIN, None),
    "--url {ws} produce cl-w -m one,two": (_NO_WEBSOCKET, None),
    "--url {ws} consume cl-w -s s -n 1": (_NO_WEBSOCKET, None),
    "--url {ws} read cl-w -m earliest -n 2": (_NO_WEBSOCKET, None),
    "--url {ws} read cl-w -m earliest --hex": (_NO_WEBSOCKET, None),
    "--url {ws} produce cl-w -f {dir}/payload.bin": (_NO_WEBSOCKET, None),
}
"""What is otherwise here: why, and the contents that are printed; None: it fails."""


def url_of(name: str) -> str:
    data = b64encode((KEYS / name).read_bytes()).decode()
    return f"data:application/x-pem-file;base64,{data}"


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for ``{dir}`` and others in lines."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "payload.bin").write_bytes(bytes(range(40)))
    (folder / "key.txt").write_bytes(b"filed")
    (folder / "large.bin").write_bytes(b"0123456789abcdef" * (6 << 16))
    return {
        "dir": str(folder),
        "keys": str(KEYS),
        "ws": "ws://127.0.0.1:1",
        "public": url_of("public.pem"),
        "private": url_of("private.pem"),
    }


def words_of(line: str, places: dict[str, str]) -> list[str]:
    for name, place in places.items():
        line = line.replace(f"{{{name}}}", place)
    return shlex.split(line)


def timeless(text: str) -> str:
    """Without what is of the moment."""
    for form, name in _OF_THE_MOMENT:
        text = form.sub(name, text)
    return text


def contents_of(text: str) -> list[str]:
    """What is printed of each message, from its content on."""
    return [each.partition("content:")[2] for each in timeless(text).split("----- got message -----\n")[1:]]


def printed(text: str) -> list[str]:
    """Messages without what is of the moment; those of several topics come in any order."""
    return sorted(timeless(text).split("----- got message -----\n"))


def test_every_line(
    start_server: Callable[..., Server], places: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server()
    wrong = []
    for line, code, expected in ROWS:
        if line in WAITING:
            continue
        try:
            got: Any = main(["--url", server.url, *words_of(line, places)])
        except SystemExit as ended:
            got = ended.code
        out, err = capsys.readouterr()
        same = got == code and (code != 0 or printed(out) == printed(expected))
        wanted = DIFFERENT.get(line)
        if same if wanted is not None else not same:
            wrong.append((line, got, code, out, expected, err))
        elif wanted is not None:
            contents = [] if wanted[1] is None else wanted[1]
            if got != (1 if wanted[1] is None else 0) or contents_of(out) != [f"{x}\n" for x in contents]:
                wrong.append((line, got, wanted, out, expected, err))
    assert not wrong
