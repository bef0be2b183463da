"""Every view of the page on narrow screens: nothing is wider than the window."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pulsar
import pytest
from chromium import chromium
from dashboard_page import Page
from selenium import webdriver
from selenium.webdriver.common.by import By
from server import Server

_LONG = "a-topic-with-a-name-that-nobody-would-want-to-type-on-a-telephone"
_PLACES = (
    "/",
    "/topics",
    "/topic/persistent/public/default/orders",
    f"/topic/persistent/public/default/{_LONG}",
    "/topic/persistent/public/default/many",
    "/topic/non-persistent/public/default/passing",
    "/namespace/public/default",
    "/namespaces",
    "/groups",
    "/storage",
    "/nowhere",
)
_WIDER = """
return [...document.querySelectorAll("body *")].filter((each) => {
  const style = getComputedStyle(each);
  const scrolls = style.overflowX === "auto" || style.overflowX === "scroll";
  return scrolls && each.clientWidth && each.scrollWidth > each.clientWidth;
}).map((each) => `${each.tagName} ${each.scrollWidth} in ${each.clientWidth}: ${each.innerText}`);
"""


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Iterator[Server]:
    """With a topic of every kind, a schema, groups, permissions, and names longer than a line."""
    server = start_server(statsUpdateFrequencyInSecs=1)
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    schema = pulsar.schema.JsonSchema(_Order)
    for name in ("orders", _LONG):
        client.subscribe(f"public/default/{name}", f"{name}-billing", consumer_name=f"{name}-consumer")
        client.subscribe(f"public/default/{name}", "ledger").close()
        producer = client.create_producer(f"public/default/{name}", schema=schema)
        for number in range(4):
            producer.send(_Order(name="tea", amount=number), properties={"origin": "somewhere-far-away"})
    role = "a-role-with-a-long-name-such-as-those-of-service-accounts@example.com"
    for path, body in (
        ("persistent/public/default/many/partitions", 3),
        ("non-persistent/public/default/passing", None),
        ("resourcegroups/a-group-of-paying-customers", {"publishRateInMsgs": 50}),
        ("resource-quotas/public/default/0x00000000_0x40000000", {"msgRateIn": 70.5}),
    ):
        status, answer = server.ask("PUT", f"/admin/v2/{path}", "" if body is None else json.dumps(body))
        assert status < 300 or "quotas" in path, answer
    granted = f"/admin/v2/persistent/public/default/orders/permissions/{role}"
    assert server.ask("POST", granted, '["produce", "consume", "functions", "sources"]')[0] == 204
    yield server
    client.close()


class _Order(pulsar.schema.Record):  # type: ignore[misc]
    name = pulsar.schema.String()
    amount = pulsar.schema.Integer()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        yield running


@pytest.mark.parametrize("width", [320, 360])
def test_no_view_scrolls_sideways(served: Server, browser: webdriver.Chrome, width: int) -> None:
    size = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page = Page(browser, served.http_url)
    found = {}
    for place in _PLACES:
        page.go(place)
        page.waiting.until(lambda _: page.element("#live").get_attribute("data-state") != "connecting")
        page.misses("Loading…")
        if place.startswith("/topic/") and "many" not in place:
            page.sees("Permissions")
        for details in browser.find_elements(By.CSS_SELECTOR, "details:not([open]) > summary"):
            details.click()
        if place == "/namespace/public/default":
            page.push("Quotas of its bundles")
            page.sees("Published/s")
        wide = browser.execute_script("return document.documentElement.scrollWidth")
        wider = browser.execute_script(_WIDER)
        if wide != width or wider:
            found[place] = (wide, wider)
    assert found == {}
