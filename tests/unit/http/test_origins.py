"""Which web pages may change something."""

from __future__ import annotations

import pytest

from magnetar.http.engine.message import Request
from magnetar.http.engine.origins import Origins

PORT = 8080


def refusal(
    origin: str | None,
    host: str = "localhost:8080",
    *,
    method: str = "POST",
    local: str = "127.0.0.1",
    **own: object,
) -> str | None:
    headers = {"host": host} | ({} if origin is None else {"origin": origin})
    origins = Origins(("0.0.0.0", "broker.example"), **own)  # type: ignore[arg-type]
    return origins.refusal(Request(method, "/", headers=headers, local_host=local), PORT)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (None, "localhost:8080"),
        (None, "evil.example"),
        ("http://localhost:8080", "localhost:8080"),
        ("http://LOCALHOST:8080", "localhost:8080"),
        ("http://127.0.0.1:8080", "localhost:8080"),
        ("http://127.1.2.3:8080", "127.1.2.3:8080"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("http://broker.example:8080", "broker.example:8080"),
        # Behind a mapped port.
        ("http://localhost:9090", "localhost:9090"),
        ("http://broker.example", "broker.example"),
        ("http://broker.example", "broker.example:80"),
    ],
)
def test_tools_and_pages_of_the_broker_itself_may(origin: str | None, host: str) -> None:
    assert refusal(origin, host) is None


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "localhost:8080"),
        # A name that its owner made lead here.
        ("http://evil.example:8080", "evil.example:8080"),
        ("http://10.0.0.7:8080", "10.0.0.7:8080"),
        # Another server of the same machine.
        ("http://localhost:3000", "localhost:8080"),
        ("http://localhost", "localhost:8080"),
        ("https://localhost:8080", "localhost:8080"),
        ("null", "localhost:8080"),
        ("", "localhost:8080"),
        ("file://", "localhost:8080"),
        ("http://localhost:8080@evil.example", "localhost:8080"),
        ("http://localhost:8080/", "localhost:8080"),
        ("http://localhost.evil.example:8080", "localhost:8080"),
        ("http://[::1", "localhost:8080"),
        ("http://localhost:99999", "localhost:8080"),
    ],
)
def test_pages_of_others_may_not(origin: str, host: str) -> None:
    reason = refusal(origin, host)
    assert reason is not None
    assert repr(origin) in reason
    assert "magnetarHttpAllowedOrigins" in reason


def test_the_address_that_was_reached_is_own() -> None:
    assert refusal("http://10.0.0.7:8080", "10.0.0.7:8080", local="10.0.0.7") is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST"])
def test_each_method_that_changes_something_is_looked_at(method: str) -> None:
    assert refusal("http://evil.example", method=method) is not None


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_reading_is_not(method: str) -> None:
    assert refusal("http://evil.example", method=method) is None


def test_settings_let_others_in() -> None:
    listed = ("https://console.example", "http://other.example:3000")
    assert refusal("https://console.example", allowed=listed) is None
    assert refusal("https://console.example:443", allowed=listed) is None
    assert refusal("http://other.example:3000", allowed=listed) is None
    assert refusal("http://console.example", allowed=listed) is not None
    assert refusal("http://other.example", allowed=listed) is not None
    assert refusal("http://evil.example", allowed=("*",)) is None
    assert refusal("null", allowed=("*",)) is None


@pytest.mark.parametrize(
    "text", ["console.example", "http://", "null", "ftp://a", "http://a/b", "http://*.a:x"]
)
def test_what_is_no_origin_cannot_be_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="magnetarHttpAllowedOrigins"):
        Origins((), (text,))
