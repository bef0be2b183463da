import io
import json
import logging
from collections.abc import Iterator

import pytest

from magnetar.server.logs import LogFormat, RateBound, configure_logging


@pytest.fixture(autouse=True)
def _root_logger_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def logged(style: LogFormat, message: str, *args: object, error: bool = False, **extra: object) -> str:
    stream = io.StringIO()
    configure_logging(style, "info", stream)
    log = logging.getLogger("magnetar.test")
    log.debug("not printed")
    if error:
        try:
            raise ValueError("bad\nvalue")
        except ValueError:
            log.exception(message, *args, extra=extra)
    else:
        log.info(message, *args, extra=extra)
    return stream.getvalue()


def test_text_lines() -> None:
    line = logged("text", "topic %s loaded", "t", topic="persistent://a/b/c", ms=3, note='two "words"')
    stamp, rest = line.split(" ", 1)
    assert stamp.endswith("Z")
    assert rest == (
        'INFO magnetar.test topic t loaded topic=persistent://a/b/c ms=3 note="two \\"words\\""\n'
    )


@pytest.mark.parametrize("odd", ["a\nb", "a\x1b[31mb", "a\u2028b", ""])
def test_nobody_can_forge_a_line(odd: str) -> None:
    line = logged("text", "name %s", odd, topic=odd)
    assert line.count("\n") == 1
    assert "\x1b" not in line
    assert "\u2028" not in line


@pytest.mark.parametrize("style", ["text", "json"])
def test_an_error_stays_on_its_line(style: LogFormat) -> None:
    line = logged(style, "failed", error=True, topic="t")
    assert line.count("\n") == 1
    assert "Traceback" in line
    assert "bad\\nvalue" in line


def test_json_lines() -> None:
    event = json.loads(logged("json", "topic %s loaded", "t", topic="ä\n", peers={1}))
    assert event["event"] == "topic t loaded"
    assert (event["level"], event["logger"]) == ("INFO", "magnetar.test")
    assert (event["topic"], event["peers"]) == ("ä\n", "{1}")


def test_lines_of_a_kind_are_bounded_and_what_is_left_out_is_told() -> None:
    bound = RateBound(lines_per_second=2, burst=5)

    def offered(at: float, text: str = "came", level: int = logging.INFO) -> logging.LogRecord | None:
        record = logging.LogRecord("n", level, "", 0, text, (), None)
        record.created = at
        return record if bound.filter(record) else None

    assert [offered(100.0) is not None for _ in range(8)] == [True] * 5 + [False] * 3
    assert offered(100.0, "left") is not None
    assert offered(100.0, level=logging.ERROR) is not None
    after = offered(100.6)
    assert after is not None
    assert getattr(after, "left_out") == 3  # noqa: B009
    assert offered(100.6) is None
    assert offered(200.0) is not None


def test_every_change_that_was_made_is_told() -> None:
    bound = RateBound(1.0, burst=2)

    def let_through(name: str, text: str) -> int:
        lines = [logging.LogRecord(name, logging.INFO, "", 0, text, None, None) for _ in range(100)]
        return sum(bound.filter(line) for line in lines)

    assert let_through("magnetar.audit", "done") == 100
    assert let_through("magnetar.audit", "refused") < 10


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize(
    "odd",
    ["a\nb", "a\r\nb", "a\x1b[31mb", "a\x7fb", "a\x85b", "a\x9b31mb", "a\u2028b", "a\u202eb", "a\ud800b"],
)
def test_what_a_stranger_says_stays_on_its_line_and_does_nothing_to_a_terminal(
    style: LogFormat, odd: str
) -> None:
    line = logged(style, "refused %s", odd, role=odd, peer={"name": odd}).removesuffix("\n")
    assert line.isprintable()
    assert line.encode()
    if style == "json":
        assert json.loads(line)["role"] == odd


@pytest.mark.parametrize("style", ["text", "json"])
def test_what_a_stranger_says_takes_so_much_room_and_no_more(style: LogFormat) -> None:
    long = "\n" * 1_000_000
    line = logged(style, "refused %s", long, role=long, reason=["x" * 1_000_000])
    assert len(line) < 40_000
    if style == "json":
        assert json.loads(line)["level"] == "INFO"
