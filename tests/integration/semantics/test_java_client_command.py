"""Apache Pulsar's own ``pulsar-client`` and Magnetar's: each reads what the other has sent."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from java_lines import java_tool, run_lines
from server import Server

from magnetar.cli.pulsar_client import main

KEYS = Path(__file__).parent / "keys"
ORDER = (
    '{"type":"record","name":"Order","fields":[{"name":"name","type":"string"},'
    '{"name":"amount","type":"int"}]}'
)
ID = '{"type":"record","name":"K","fields":[{"name":"id","type":"int"}]}'
TEA = '{"name": "tea", "amount": 2}'
LARGE = "0123456789abcdef" * (6 << 16)

Line = tuple[str, ...]
EC: tuple[Line, Line] = (
    ("-ekn", "ec.key", "-ekv", f"file://{KEYS}/ec-public.pem"),
    ("-ekv", f"file://{KEYS}/ec-private.pem"),
)
RSA: tuple[Line, Line] = (
    ("-ekn", "rsa.key", "-ekv", f"file://{KEYS}/public.pem"),
    ("-ekv", f"file://{KEYS}/private.pem"),
)
PAIR: Line = ("-kvet", "separated")
AUTO: Line = ("-st", "auto_consume")
_TEXT = "type=class java.lang.String"
CASES: dict[str, tuple[Line, Line, str, str]] = {
    "ec": (("-m", "curved", "-db", *EC[0]), EC[1], "curved", "curved"),
    "chunks": (("-f", "LARGE", "-c", *RSA[0]), RSA[1], LARGE, LARGE),
    "json": (("-s", "#", "-vs", f"json:{ORDER}", "-m", TEA), AUTO, "{amount=2, name=tea}", TEA),
    "separated": (
        (*PAIR, "-ks", f"json:{ID}", "-kvk", '{"id": 1}', "-vs", f"avro:{ORDER}", "-s", "#", "-m", TEA),
        AUTO,
        "{key={id=1}, value={amount=2, name=tea}}",
        f'{{"key": {{"id": 1}}, "value": {TEA}}}',
    ),
    "inline": (
        ("-kvet", "inline", "-kvk", "k", "-m", "v", "-vs", "string"),
        AUTO,
        f"{{key={{value=k, {_TEXT}}}, value={{value=v, {_TEXT}}}}}",
        '{"key": "k", "value": "v"}',
    ),
    "no-key": (
        (*PAIR, "-m", "v"),
        AUTO,
        f"{{key={{value=NULL}}, value={{value=v, {_TEXT}}}}}",
        '{"key": null, "value": "v"}',
    ),
}
"""What is sent; how it is read; what Apache's prints of it, and what Magnetar's."""


def fields_of(content: str) -> list[str]:
    """Java's come in the order of hashes."""
    return sorted(re.split("[{},]+ ?", content))


def contents_of(text: str) -> list[str]:
    return [found.strip() for found in re.findall("content:(.*)", text)]


def test_each_reads_what_the_other_sent(
    start_server: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = start_server()
    command = java_tool("ClientLines")
    (tmp_path / "large").write_text(LARGE)
    sent = {
        name: [str(tmp_path / "large") if word == "LARGE" else word for word in case[0]]
        for name, case in CASES.items()
    }
    for name, words in sent.items():
        assert main(["--url", server.url, "produce", f"ours-{name}", *words]) == 0, capsys.readouterr()
    lines = [["produce", f"java-{name}", *words] for name, words in sent.items()]
    lines += [["read", f"ours-{name}", "-m", "earliest", *case[1]] for name, case in CASES.items()]
    answers = run_lines(command, server.url, lines)
    assert [code for code, _, _ in answers] == [0] * len(lines), answers
    capsys.readouterr()
    for (name, (_, how, theirs, ours)), (_, out, _) in zip(CASES.items(), answers[len(CASES) :], strict=True):
        (content,) = contents_of(out)
        assert fields_of(content) == fields_of(theirs), name
        for sender in ("ours", "java"):
            assert main(["--url", server.url, "read", f"{sender}-{name}", "-m", "earliest", *how]) == 0
            assert contents_of(capsys.readouterr().out) == [ours], (name, sender)
