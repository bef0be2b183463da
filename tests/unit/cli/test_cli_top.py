"""Parts of ``magnetar top``: keys, what they do, and how topics become lines."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from magnetar.admin_client import AdminError, CannotConnect
from magnetar.admin_client.events import MOST_LINE
from magnetar.admin_client.http import AdminHttp
from magnetar.cli.printable import cells, fitted
from magnetar.cli.top.feed import TopicSelection, first_shown
from magnetar.cli.top.screen import Keys
from magnetar.cli.top.table import View, table


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"q/", ["q", "/"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[H", ["up", "down", "page up", "home"]),
        (b"\x1b[1;5Cx", ["x"]),
        ("grün\r".encode(), ["g", "r", "ü", "n", "enter"]),
        (b"\x1b\x1b[B", ["escape", "down"]),
        (b"\xffa", ["a"]),
    ],
)
def test_keys_in_one_piece_and_byte_by_byte(data: bytes, keys: list[str]) -> None:
    assert Keys().of(data) == keys
    pieces = Keys()
    found = [key for byte in data for key in pieces.of(bytes((byte,)))]
    assert found + pieces.of(b"") == keys


def test_escape_is_a_key_when_nothing_follows() -> None:
    keys = Keys()
    assert (keys.of(b"\x1b"), keys.begun) == ([], True)
    assert (keys.of(b""), keys.begun) == (["escape"], False)


def test_a_view_scrolls_within_the_topics_and_asks_seldom() -> None:
    view = View("in")
    assert view.pressed("up", 20, 50).top == 0
    assert view.pressed("end", 20, 50).top == 30
    assert view.pressed("page down", 20, 50).pressed("page down", 20, 50).top == 30
    assert view.pressed("end", 20, 50).pressed("b", 20, 50) == View("backlog")
    assert View("in", top=30).within(20, 10).top == 0
    asked = {View("in", top=top).asked(20) for top in range(160)}
    assert sorted(each.first for each in asked) == [0, 80]
    # Whatever is on the screen is in what was asked for.
    for rows in (1, 50, 99, 100):
        for top in (0, 99, 100, 101):
            first = View("in", top=top).asked(rows).first
            assert first <= top
            assert top + rows <= first + 100


def test_arrows_mark_a_topic_and_scroll_at_the_edges() -> None:
    def after(*keys: str, rows: int = 3, total: int = 5) -> tuple[int, int]:
        view = View("in")
        for key in keys:
            view = view.pressed(key, rows, total)
        return view.top, view.mark

    assert after("down") == (0, 1)
    assert after("down", "down") == (0, 2)
    assert after(*["down"] * 3) == (1, 2)
    assert after(*["down"] * 9) == (2, 2)
    assert after(*["down"] * 9, "up") == (2, 1)
    assert after("end", "up", "up", "up") == (1, 0)
    assert after("end") == (2, 2)
    assert after("end", "home") == (0, 0)
    assert after("page down") == (2, 1)
    assert after("page down", "page down") == (2, 2)
    assert after("page down", "page up") == (0, 0)
    assert after("down", "end", total=0) == (0, 0)
    assert after("down", "down", total=2) == (0, 1)
    assert View("in", mark=3).within(2, 9).mark == 1
    assert View("in", mark=3).within(9, 2).mark == 1
    assert View("in", mark=3).within(9, 0).mark == 0
    assert View("in", mark=3).pressed("b", 9, 9).mark == 0


def test_a_filter_is_typed_taken_back_and_kept() -> None:
    view = View("in", words="old")
    for key in ("/", *["backspace"] * 4, "o", "q", " ", "up", "b", "enter"):
        view = view.pressed(key, 20, 50)
    assert view == View("in", words="oq b")
    assert view.pressed("/", 20, 50).pressed("x", 20, 50).pressed("escape", 20, 50) == view
    assert view.pressed("escape", 20, 50) == View("in")


def test_texts_of_others_stay_in_their_columns() -> None:
    assert [fitted("abc", width) for width in (5, 3, 2, 1, 0)] == ["abc  ", "abc", "a…", "…", ""]
    assert (cells("漢字e\u0301"), fitted("漢字", 4), fitted("漢字", 3), fitted("漢字", 2)) == (
        5,
        "漢字",
        "漢…",
        "… ",
    )


def line(name: str, **more: object) -> dict[str, object]:
    figures = {
        "rateIn": 1234.5,
        "rateOut": 0.25,
        "backlog": 7,
        "producers": 1,
        "consumers": 2,
        "subscriptions": 3,
    }
    return {"topic": name, **figures, **more}


def test_topics_as_lines() -> None:
    waiting = {
        "subscription": "s\x1b[2J",
        "subscriptions": 3,
        "reason": "no_permits",
        "since": 0,
        "backlog": 7,
    }
    topics = [
        line("persistent://a/b/c", waiting=waiting),
        {"topic": "non-persistent://a/b/d", "loaded": False},
    ]
    assert table(topics, None, 65_000)[1:] == [
        "    1,234       0.2          7     1     2     3 a/b/c                  "
        "s\\x1b[2J: no_permits for 1 min, 7 behind, and 2 more",
        "        -         -          -     -     -     - non-persistent://a/b/d",
    ]


def test_names_can_be_told_apart_on_a_narrow_screen() -> None:
    topics = [line(f"persistent://public/default/{name}") for name in ("orders", "payments-of-the-year")]
    titles, *lines = table(topics, 40, 0)
    assert titles.split()[:2] == ["backlog", "topic"]
    assert "public/default/orders" in lines[0]
    assert "payments-of-the-year" in lines[1]
    assert {cells(each) for each in (titles, *lines)} == {40}
    assert table(topics, 70, 0)[0].split()[:3] == ["in/s", "out/s", "backlog"]


def test_the_lag_of_replication_has_a_column_where_a_topic_is_replicated() -> None:
    lags = [
        {"cluster": "west", "connected": False, "lagSeconds": 75.0, "backlog": 1234},
        {"cluster": "north\x1b", "connected": True, "lagSeconds": 0.0, "backlog": 0},
    ]
    topics = [line("persistent://a/b/c", replication=lags), line("persistent://a/b/d")]
    titles, first, second = table(topics, None, 0)
    assert titles.split()[-3:] == ["topic", "replication", "waits"]
    assert titles.index("replication") == first.index("west")
    assert first.endswith("a/b/c west 1 min, 1,234 (disconnected); north\\x1b 0.0 s, 0")
    assert second.endswith("a/b/d")
    narrow = table(topics, 80, 0)
    assert [cells(each) for each in narrow] == [80] * 3
    assert "west 1 min" in narrow[1]
    assert "replication" not in table(topics[1:], None, 0)[0]
    for width in (20, 60, 89, 90, 200):
        assert {cells(each) for each in table(topics, width, 0)} == {width}
    assert "prod" not in table(topics, 89, 0)[0]
    assert table([], None, 0)[0].split()[0] == "in/s"


@contextmanager
def answering(status: int, kind: str, body: bytes) -> Iterator[AdminHttp]:
    """A server that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield AdminHttp(f"http://127.0.0.1:{server.server_port}", timeout_seconds=10)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("status", "kind", "body", "error", "words"),
    [
        (404, "application/json", b'{"reason":"no such path"}', AdminError, "magnetarDashboardEnabled=true"),
        (403, "application/json", b'{"reason":"not yours"}', AdminError, "not yours"),
        (200, "text/html", b"<html>", AdminError, "is not an event stream"),
        (200, "text/event-stream", b"", AdminError, "without sending data"),
        (200, "text/event-stream", b'event: gone\ndata: {"reason":"it went"}\n\n', AdminError, "it went"),
        (200, "text/event-stream", b"event: shown\ndata: {\n\n", AdminError, "an event that is not JSON"),
        (
            200,
            "text/event-stream",
            b"event: shown\ndata: 1\n\n",
            AdminError,
            "an event that is not a JSON object",
        ),
        (200, "text/event-stream", b"x" * (MOST_LINE + 1), AdminError, f"more than {MOST_LINE} bytes"),
    ],
)
def test_answers_that_cannot_be_shown(status: int, kind: str, body: bytes, error: type, words: str) -> None:
    with answering(status, kind, body) as http, pytest.raises(error, match=words):
        first_shown(http, TopicSelection("in", 10))


def test_the_next_broker_is_asked_where_one_is_gone() -> None:
    told = b':\n\nevent: shown\ndata: {"total":1}\n\n'
    with answering(200, "text/event-stream", told) as http:
        both = AdminHttp(f"http://127.0.0.1:1,{http._urls[0].removeprefix('http://')}", timeout_seconds=10)
        assert first_shown(both, TopicSelection("in", 10)) == {"total": 1}
    with pytest.raises(CannotConnect):
        first_shown(AdminHttp("http://127.0.0.1:1"), TopicSelection("in", 10))
