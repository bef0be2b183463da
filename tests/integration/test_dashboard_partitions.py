"""A partitioned topic on the page: totals, subscriptions over all partitions, and more partitions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from chromium import chromium
from dashboard_page import SCHEMES, WIDTHS, Page
from selenium import webdriver
from server import Server

_CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Server:
    return start_server(statsUpdateFrequencyInSecs=1)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        yield running


def _stats(server: Server, local: str) -> Any:
    status, body = server.ask("GET", f"/admin/v2/persistent/public/default/{local}/partitioned-stats")
    assert status == 200, body
    return json.loads(body)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_partitions_are_shown_and_managed_together(
    served: Server, browser: webdriver.Chrome, width: int, scheme: str
) -> None:
    local = f"many-{width}-{scheme}"
    path = f"/admin/v2/persistent/public/default/{local}"
    assert served.ask("PUT", f"{path}/partitions", "3")[0] == 204
    browser.get_log("browser")
    page = Page(browser, served.http_url)
    page.appear(width, scheme)
    page.go(f"/topic/persistent/public/default/{local}")
    page.sees("3 partitions", "0 subscriptions", "1 to 3 of 3", "Retention", "Authorization is off")
    page.push("Create subscription")
    page.fill(name="billing")
    page.push("Create", "dialog")
    page.sees("1 subscription", "billing was created")
    client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer(
        f"public/default/{local}", message_routing_mode=pulsar.PartitionsRoutingMode.RoundRobinDistribution
    )
    for number in range(9):
        producer.send(b"%d" % number)
    row = "[data-key='subscription billing']"
    page.waiting.until(lambda _: "9" in page.element(f"{row} td:nth-child(2)").text)
    client.close()
    page.push("More partitions")
    page.fill(partitions="5")
    page.push("Add", "dialog")
    page.sees(f"{local} has 5 partitions", "5 partitions", "1 to 5 of 5")
    page.check_fits(width)
    assert page.browser.execute_script(_CONTRAST)["faint"] == []
    page.push("Clear backlog", row)
    page.fill(typed="billing")
    page.push("Clear", "dialog")
    page.waiting.until(lambda _: page.element(f"{row} td:nth-child(2)").text.split()[-1] == "0")
    page.push("Reset cursor", row)
    page.fill(to="the oldest stored message")
    page.push("Reset", "dialog")
    page.waiting.until(lambda _: "9" in page.element(f"{row} td:nth-child(2)").text)
    assert _stats(served, local)["subscriptions"]["billing"]["msgBacklog"] == 9
    page.push("Set", "dl [data-key='Time to live']")
    page.fill(seconds="7200")
    page.push("Set", "dialog")
    page.sees("Time to live was set", "set here")
    page.push("Delete", row)
    page.fill(typed="billing")
    page.push("Delete", "dialog")
    page.sees("billing was deleted", "0 subscriptions")
    assert _stats(served, local)["subscriptions"] == {}
    page.check_console()
