"""Messages on the page: looking at them, and sending one; on three screens, light and dark."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from chromium import chromium
from dashboard_page import SCHEMES, WIDTHS, Page, choose
from secured import SUPERUSER, SecuredServer, token
from selenium import webdriver
from server import Server

_CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
_PLACE = "/topic/persistent/public/default/orders"


class _Order(pulsar.schema.Record):  # type: ignore[misc]
    name = pulsar.schema.String()
    amount = pulsar.schema.Integer()


@pytest.fixture(scope="module")
def ids(served: Server) -> list[str]:
    """Positions of 25 orders, each with a key, one of two, and properties."""
    client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        "public/default/orders",
        schema=pulsar.schema.JsonSchema(_Order),
        producer_name="shop",
        batching_enabled=False,
    )
    found = [
        producer.send(
            _Order(name=f"tea {number}", amount=number),
            partition_key=("odd" if number % 2 else "even"),
            properties={"origin": "a shop"},
        )
        for number in range(25)
    ]
    client.close()
    return [f"{each.ledger_id()}:{each.entry_id()}" for each in found]


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Server:
    return start_server(statsUpdateFrequencyInSecs=1)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        yield running


@pytest.fixture
def page(served: Server, browser: webdriver.Chrome) -> Iterator[Page]:
    browser.get_log("browser")
    shown = Page(browser, served.http_url)
    yield shown
    shown.check_console()


def _numbers(page: Page) -> list[int]:
    # In one call: a page of messages replaces the elements of the one before.
    script = "return [...document.querySelectorAll('.message .preview')].map((each) => each.innerText)"
    return [json.loads(each)["amount"] for each in page.browser.execute_script(script)]


def _shows(page: Page, *numbers: int) -> None:
    page.until(lambda: _numbers(page) == list(numbers), f"the messages are not {numbers}")


def _choose(page: Page, name: str, words: str) -> None:
    choose(page.element(f".look [name={name}]"), words)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_messages_by_position_time_and_key(page: Page, ids: list[str], width: int, scheme: str) -> None:
    page.appear(width, scheme)
    page.go(_PLACE)
    page.sees("Nothing is loaded until you ask for it", "Permissions")
    page.push("Show messages")
    _shows(page, *range(15, 25))
    page.sees("10 messages of 10 entries", f"{ids[0]} to {ids[-1]}")
    page.misses("Next page")
    page.element(f".message[data-key^='{ids[24]}:'] summary").click()
    page.sees("Value, decoded as JSON", '"name": "tea 24"', "origin", "a shop", "shop", "Sequence ID")
    page.element(".message[open] [data-key=bytes] summary").click()
    page.sees("0000  7b ")
    page.check_fits(width)
    assert page.browser.execute_script(_CONTRAST)["faint"] == []
    _choose(page, "start", "a position")
    page.element(".look [name=position]").send_keys(ids[3])
    page.push("Show messages")
    _shows(page, *range(3, 13))
    page.push("Next page")
    _shows(page, *range(13, 23))
    page.push("Next page")
    _shows(page, 23, 24)
    _choose(page, "start", "the oldest")
    page.element(".look [name=key]").send_keys("odd")
    page.push("Show messages")
    _shows(page, *range(1, 20, 2))
    page.element("body").send_keys("]")
    _shows(page, 21, 23)
    _choose(page, "start", "a time")
    page.browser.execute_script("document.querySelector('.look [name=time]').value = '2020-01-01T00:00:00'")
    page.push("Show messages")
    _shows(page, *range(1, 20, 2))
    page.browser.execute_script("document.querySelector('.look [name=time]').value = '2099-01-01T00:00:00'")
    page.push("Show messages")
    page.sees("No such message.")
    page.check_fits(width)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_test_message_is_sent_and_seen(page: Page, served: Server, width: int, scheme: str) -> None:
    local = f"plain-{width}-{scheme}"
    assert served.ask("PUT", f"/admin/v2/persistent/public/default/{local}")[0] == 204
    page.appear(width, scheme)
    page.go(f"/topic/persistent/public/default/{local}")
    page.sees("Permissions")
    page.push("Send a test message")
    page.sees("The topic has no schema")
    page.fill(content="hello\nworld", key="k1", properties="no value")
    page.push("Send", "dialog")
    page.sees("A property is NAME=VALUE, not no value")
    page.fill(properties="one=1\ntwo = 2=2")
    assert page.browser.execute_script(_CONTRAST)["faint"] == []
    page.check_fits(width)
    page.push("Send", "dialog")
    page.sees("Sent as ")
    page.push("Show messages")
    page.sees("1 message of 1 entry", "k1")
    page.element(".message summary").click()
    page.sees("hello\nworld", "Property one", "2=2", "11 bytes")
    # Bytes are published without a schema, so that the topic may still get one.
    status, schemas = served.ask("GET", f"/admin/v2/schemas/public/default/{local}/schemas")
    assert (status, json.loads(schemas)["getSchemaResponses"]) == (200, [])


def test_a_test_message_has_to_fit_the_schema(page: Page, served: Server, ids: list[str]) -> None:
    page.appear(1280, "light")
    path = "/admin/v2/magnetar/messages/persistent/public/default/typed?count=1"
    client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.create_producer("public/default/typed", schema=pulsar.schema.AvroSchema(_Order)).close()
    client.close()
    page.go("/topic/persistent/public/default/typed")
    page.sees("Version 0, AVRO")
    page.push("Send a test message")
    page.sees("must fit the topic's schema, AVRO")
    page.fill(content="no record")
    page.push("Send", "dialog")
    page.waiting.until(lambda _: page.element(".failed").text)
    page.fill(content='{"name": {"string": "coffee"}, "amount": {"int": 3}}')
    page.push("Send", "dialog")
    page.sees("Sent as ")
    [message] = json.loads(served.ask("GET", path)[1])["messages"]
    assert message["value"] == {"name": "coffee", "amount": 3}
    # What the broker refused is in the console, and nothing else.
    [line] = page.browser.get_log("browser")
    assert "400" in line["message"]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    server.start()
    yield server
    server.close()


def test_large_compressed_contents_are_not_opened_and_the_page_says_so(page: Page, served: Server) -> None:
    client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("public/default/large", compression_type=pulsar.CompressionType.ZSTD)
    producer.send(b"x" * (2 << 20))
    client.close()
    page.appear(320, "light")
    page.go("/topic/persistent/public/default/large")
    page.push("Show messages")
    page.sees("ZSTD-compressed, 2.1 MB uncompressed")
    page.element(".message summary").click()
    page.sees(
        "The broker does not open contents above 1 MiB",
        "these are the bytes of this message, compressed with ZSTD; uncompressed they have 2.1 MB",
    )
    page.check_fits(320)


def _as_admin(server: SecuredServer, method: str, path: str, body: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token(SUPERUSER)}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{server.http_url}{path}", body.encode(), headers, method=method)
    with urllib.request.urlopen(asked) as answer:
        return answer.read()


def test_a_refusal_names_the_permission(secured: SecuredServer, browser: webdriver.Chrome) -> None:
    _as_admin(secured, "PUT", "/admin/v2/persistent/public/default/orders")
    for role, action in (("writer", "produce"), ("reader", "consume")):
        path = f"/admin/v2/namespaces/public/default/permissions/{role}"
        _as_admin(secured, "POST", path, json.dumps([action]))
    page = Page(browser, secured.http_url)
    page.appear(1280, "light")
    page.go("/")
    page.sees("This broker requires authentication.")
    page.fill(token=token("writer"))
    page.push("Use it", "dialog")
    page.browser.get(f"{secured.http_url}/#{_PLACE}")
    page.sees("0 subscriptions")
    page.push("Send a test message")
    page.fill(content="one")
    page.push("Send", "dialog")
    page.sees("Sent as ")
    page.push("Show messages")
    page.sees("Looking at messages needs the permission to consume")
    page.push("Token: set")
    page.fill(token=token("reader"))
    page.push("Use it", "dialog")
    page.sees("0 subscriptions")
    page.push("Show messages")
    page.sees("1 message of 1 entry")
    page.push("Send a test message")
    page.fill(content="two")
    page.push("Send", "dialog")
    page.sees("Sending needs the permission to produce")
    page.push("Cancel", "dialog")
    browser.execute_script("sessionStorage.clear()")
    browser.get_log("browser")
