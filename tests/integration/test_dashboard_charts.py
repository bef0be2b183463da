"""Charts of the page: axes with units and times, and values at the pointer and by keys."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from chromium import chromium
from dashboard_page import SCHEMES, WIDTHS, Page
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from server import Server

_CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
_LINES = ".chart.latency polyline"
_OUTPUT = "return document.querySelector('.chart.latency output').innerText"
_LATENCY = re.compile(r"p50 [\d.]+, p99 [\d.]+ ms at \d")
_VALUE = re.compile(r"[\d.]+K? msg/s at \d")


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Iterator[Server]:
    server = start_server(statsUpdateFrequencyInSecs=1)
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("public/default/orders")
    for number in range(20):
        producer.send(b"%d" % number)
    yield server
    client.close()


@pytest.fixture(scope="module")
def published(served: Server) -> Iterator[None]:
    """Messages all the time, so that every moment has a latency."""
    over = threading.Event()

    def publish() -> None:
        client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        producer = client.create_producer("public/default/orders")
        while not over.wait(0.05):
            producer.send(b"x")
        client.close()

    thread = threading.Thread(target=publish)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        yield running


def go_through(
    served: Server, browser: webdriver.Chrome, width: int, scheme: str, look: Callable[[Page], None]
) -> None:
    """Looks at the charts of the first page and of a topic, while a value is shown and afterwards."""
    browser.get_log("browser")
    page = Page(browser, served.http_url)
    page.appear(width, scheme)
    for place in ("/", "/topic/persistent/public/default/orders"):
        page.go(place)
        look(page)
        page.check_fits(width)
        assert page.browser.execute_script(_CONTRAST)["faint"] == []
        page.press(Keys.ESCAPE)
        page.waiting.until(lambda _: "Point at" in page.element(".chart.out output").text)
    page.check_console()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_values_are_read_by_pointer_and_by_keys(
    served: Server, browser: webdriver.Chrome, width: int, scheme: str
) -> None:
    def look(page: Page) -> None:
        page.sees("Point at the chart", "msg/s")
        plot = page.element(".chart.in .plot")
        ActionChains(browser).move_to_element(plot).perform()
        page.waiting.until(lambda _: _VALUE.match(page.element(".chart.in output").text))
        browser.execute_script("document.querySelector('.chart.out .plot').focus()")
        page.press(Keys.HOME)
        page.waiting.until(lambda _: _VALUE.match(page.element(".chart.out output").text))
        page.press(Keys.ARROW_RIGHT, Keys.END)
        page.waiting.until(lambda _: _VALUE.match(page.element(".chart.out output").text))

    go_through(served, browser, width, scheme, look)


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_latencies_are_drawn_with_both_quantiles(
    served: Server, browser: webdriver.Chrome, width: int, scheme: str
) -> None:
    def look(page: Page) -> None:
        page.sees("Publish latency", "p50", "p99", "ms")
        page.waiting.until(lambda _: len(page.browser.find_elements(By.CSS_SELECTOR, _LINES)) >= 2)
        browser.execute_script("document.querySelector('.chart.latency .plot').focus()")
        page.press(Keys.END)
        page.waiting.until(lambda _: _LATENCY.match(browser.execute_script(_OUTPUT)))

    go_through(served, browser, width, scheme, look)
