"""What is said over WebSocket is what Apache Pulsar 4.0.8 says; ``websocket_talk.txt`` is what it said."""

from __future__ import annotations

from pathlib import Path

from server import Server
from websocket_process import WebSocketProcess
from websocket_talk import conversation

_RECORDED = Path(__file__).with_name("websocket_talk.txt")

_GONE = {"< gone": "< close 1007", "< close 1011": "< close 1007"}
"""A command that is none: Pulsar ends the connection without a word, or as if it were its own fault."""
_STATUS = (
    ("encryptionKeys=a", 400),
    ("messageId=xx", 400),
    ("nonsense/public", 412),
    ("/ws/v3/consumer/v3", 400),
)
"""Where Pulsar answers 500 to what the client did wrong."""


def _expected(line: str) -> str:
    if line in _GONE:
        return _GONE[line]
    path, arrow, status = line.rpartition(" -> ")
    for part, ours in _STATUS:
        if arrow and status == "500" and part in path:
            return f"{path} -> {ours}"
    return line


def _explained(ours: str, theirs: str) -> bool:
    if "send-error:3" in theirs and "context" in ours:
        # A message that is not understood as a whole is given its context back, where it has one.
        return True
    # Pulsar's broker has no such statistics, its WebSocket service beside brokers has.
    return ours.startswith("GET /admin/v2/proxy-stats/") and theirs.endswith("404")


def test_the_talk_is_pulsars(server: Server) -> None:
    _is_as_recorded(server)


def test_the_talk_with_a_process_without_a_broker_is_pulsars(server: Server, tmp_path: Path) -> None:
    beside = WebSocketProcess(tmp_path, brokerServiceUrl=server.url)
    try:
        beside.start()
        _is_as_recorded(beside)
    finally:
        beside.close()


def _is_as_recorded(server: Server) -> None:
    recorded = [_expected(line) for line in _RECORDED.read_text().splitlines()]
    ours = conversation(server.http_url, f"{server.http_url.rpartition(':')[2]}")
    assert len(ours) == len(recorded)
    differing = [(a, b) for a, b in zip(ours, recorded, strict=True) if a != b and not _explained(a, b)]
    assert not differing
