"""Cursors that are reset on the page: to the earliest and latest message, a position and a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pulsar
import pytest
from chromium import chromium
from dashboard_page import SCHEMES, WIDTHS, Page
from selenium import webdriver
from server import Server


@pytest.fixture(scope="module")
def ids(served: Server) -> list[str]:
    """Positions of ten messages, which the subscription ``billing`` has to receive."""
    client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe("public/default/orders", "billing").close()
    producer = client.create_producer("public/default/orders", batching_enabled=False)
    found = [producer.send(b"%d" % number) for number in range(10)]
    client.close()
    return [f"{each.ledger_id()}:{each.entry_id()}" for each in found]


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Server:
    return start_server(statsUpdateFrequencyInSecs=1)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        yield running


def _backlog(server: Server) -> int:
    status, body = server.ask("GET", "/admin/v2/persistent/public/default/orders/stats")
    assert status == 200, body
    return int(json.loads(body)["subscriptions"]["billing"]["msgBacklog"])


def _set_time(page: Page, text: str) -> None:
    page.browser.execute_script(f"document.querySelector('dialog [name=time]').value = '{text}'")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_cursor_is_reset(
    served: Server, browser: webdriver.Chrome, ids: list[str], width: int, scheme: str
) -> None:
    browser.get_log("browser")
    page = Page(browser, served.http_url)
    page.appear(width, scheme)
    page.go("/topic/persistent/public/default/orders")
    page.sees("billing", "Permissions")

    def reset(to: str, fill: Callable[[], None] = lambda: None) -> int:
        page.push("Reset cursor")
        page.fill(to=to)
        fill()
        page.check_fits(width)
        page.push("Reset", "dialog")
        page.sees("The cursor of billing was reset")
        page.browser.execute_script("document.getElementById('told').replaceChildren()")
        return _backlog(served)

    assert reset("new messages only") == 0
    page.sees("no messages wait")
    assert reset("the oldest stored message") == 10
    page.sees("10 messages wait")
    assert reset("a position", lambda: page.fill(position=ids[7])) == 3
    assert reset("a time", lambda: _set_time(page, "2020-01-01T00:00:00")) == 10
    assert reset("a time", lambda: _set_time(page, "2099-01-01T00:00:00")) == 0
    page.push("Reset cursor")
    page.fill(to="a position", position="soon")
    page.push("Reset", "dialog")
    assert not page.browser.execute_script("return document.querySelector('dialog form').checkValidity()")
    page.fill(to="a time")
    page.misses("LEDGER:ENTRY")
    page.push("Cancel", "dialog")
    page.check_console()
