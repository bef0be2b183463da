"""The page at ``/`` in a real browser, beside official clients: what it shows, does, and is usable by."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pulsar
import pytest
from chromium import chromium
from dashboard_page import Page
from secured import SUPERUSER, SecuredServer, token
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from server import Server

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'; img-src 'self'"
)
_CONTRAST = (Path(__file__).parent / "contrast.js").read_text()


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Iterator[Server]:
    """With a topic that is being read, and one whose subscription nobody serves."""
    server = start_server(statsUpdateFrequencyInSecs=1)
    client = pulsar.Client(server.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    reading = client.subscribe("public/default/orders", "billing", consumer_name="bill-1")
    client.subscribe("public/default/payments", "ledger").close()
    schema = pulsar.schema.StringSchema()
    for name, messages in (("orders", 3), ("payments", 7)):
        producer = client.create_producer(f"public/default/{name}", schema=schema)
        for _ in range(messages):
            producer.send("a message")
    for _ in range(3):
        reading.acknowledge(reading.receive())
    yield server
    client.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        yield running


@pytest.fixture
def page(served: Server, browser: webdriver.Chrome) -> Iterator[Page]:
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get_log("browser")
    shown = Page(browser, served.http_url)
    yield shown
    shown.check_console()


def _asked(server: Server, path: str) -> Any:
    status, body = server.ask("GET", path)
    assert status == 200, body
    return json.loads(body)


def test_from_the_broker_to_why_nothing_arrives(page: Page) -> None:
    page.go("/")
    page.sees("standalone", "Why nothing arrives", "payments in public/default", "no consumer", "this broker")
    page.element("main tbody a").click()
    page.sees("ledger", "No consumer is connected; 7 messages wait.", "pulsar-admin topics peek-messages")
    page.sees("Version 0, STRING", "Retention")
    page.browser.back()
    page.sees("Why nothing arrives", "Connections")


def test_topics_are_found_ordered_and_opened_by_keys_alone(page: Page) -> None:
    page.go("/topics")
    page.sees("orders", "payments", "1 to 2 of 2")
    page.press("/", *"PAY")
    page.sees("1 to 1 of 1")
    page.misses("orders")
    assert page.browser.current_url.endswith("#/topics?words=PAY")
    page.press(Keys.ARROW_DOWN)
    assert page.browser.switch_to.active_element.text == "payments"
    page.press(Keys.ENTER)
    page.sees("1 subscription", "ledger")
    page.press("b")
    page.sees("Why nothing arrives")
    page.press("u")
    page.sees("1 to 1 of 1", "payments")
    assert page.element("th[aria-sort=descending]").text.startswith("Waits")
    page.press("?")
    page.sees("move between lines")
    page.press(Keys.ESCAPE)
    page.misses("move between lines")
    page.press("?")
    page.sees("move between lines")
    # What was open goes with what it was opened over.
    page.browser.back()
    page.misses("move between lines")


def test_figures_are_live_and_a_backlog_is_cleared_once_its_name_is_typed(page: Page, served: Server) -> None:
    page.go("/topic/persistent/public/default/payments")
    page.sees("7 messages wait")
    page.element("details summary").click()
    kept = page.element("details[open] summary")
    client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("public/default/payments", schema=pulsar.schema.StringSchema())
    producer.send("another")
    page.sees("8 messages wait", producer.producer_name())
    # What is open stays open, and is the same element.
    assert kept.is_displayed()
    client.close()
    page.push("Clear backlog")
    button = page.element("dialog button.danger")
    assert not button.is_enabled()
    page.fill(typed="ledge")
    assert not button.is_enabled()
    page.fill(typed="ledger")
    button.click()
    page.sees("The backlog of ledger was cleared", "No consumer is connected; no messages wait.")
    stats = _asked(served, "/admin/v2/persistent/public/default/payments/stats")
    assert stats["subscriptions"]["ledger"]["msgBacklog"] == 0
    page.push("Reset cursor")
    page.fill(to="a time")
    page.browser.execute_script("document.querySelector('dialog [name=time]').value = '2020-01-01T00:00'")
    page.push("Reset", "dialog")
    page.sees("The cursor of ledger was reset", "8 messages wait")
    page.push("Skip")
    page.fill(number="3")
    page.push("Skip", "dialog")
    page.sees("3 skipped", "5 messages wait")


def test_what_is_made_is_seen_and_what_is_deleted_is_gone(page: Page, served: Server) -> None:
    page.go("/namespaces")
    page.sees("public", "default")
    page.push("Create tenant")
    page.fill(name="shop")
    page.push("Create", "dialog")
    page.sees("shop was created", "No namespaces.")
    page.push("Create namespace", "section[data-key=shop]")
    page.fill(name="eu")
    page.push("Create", "dialog")
    page.sees("shop/eu was created")
    page.go("/namespace/shop/eu")
    page.sees("No such topic.", "Bundles")
    page.push("Create topic")
    page.sees("is deleted after a minute (brokerDeleteInactiveTopicsEnabled)")
    page.fill(local="carts & more")
    page.push("Create", "dialog")
    page.sees("was created", "Create subscription", "No schema: messages are bytes.")
    page.push("Create subscription")
    page.fill(name="checkout")
    page.push("Create", "dialog")
    page.sees("1 subscription", "checkout")
    page.push("Unload")
    page.push("Unload", "dialog")
    page.sees("The topic was unloaded", "checkout")
    page.go("/namespace/shop/eu")
    page.sees("carts & more")
    page.push("Delete")
    page.fill(typed="shop/eu")
    page.push("Delete", "dialog")
    page.waiting.until(lambda _: page.element(".failed").text)
    assert "shop/eu" in {*_asked(served, "/admin/v2/namespaces/shop")}
    page.push("Cancel", "dialog")
    page.element("main tbody a").click()
    page.sees("checkout")
    page.push("Delete")
    page.fill(typed="carts & more")
    page.push("Delete", "dialog")
    page.sees("carts & more was deleted", "1 to 2 of 2")
    assert _asked(served, "/admin/v2/persistent/shop/eu") == []
    # The refusal that was asked for, and the only one.
    [line] = page.browser.get_log("browser")
    assert "409" in line["message"]


def test_partitions_older_names_and_what_is_stored_nowhere_are_shown(page: Page, served: Server) -> None:
    path = "/admin/v2/persistent/public/default/many/partitions"
    assert served.ask("PUT", path, "3")[0] == 204
    page.go("/topic/persistent/public/default/many")
    page.sees("3 partitions", "many-partition-2", "1 to 3 of 3")
    page.element("main tbody a").click()
    page.sees("0 subscriptions", "Retention")
    page.push("Delete")
    page.fill(typed="many")
    page.push("Delete", "dialog")
    page.sees("many was deleted")
    assert served.ask("GET", "/admin/v2/persistent/public/default/partitioned")[1] == b"[]"
    assert served.ask("PUT", "/admin/v2/non-persistent/public/default/passing")[0] == 204
    page.go("/topic/non-persistent/public/default/passing")
    page.sees("published messages are dropped", "No schema")
    page.misses("Retention")
    assert served.ask("PUT", "/admin/persistent/sample/standalone/ns1/older")[0] == 204
    page.go("/namespace/sample/standalone/ns1")
    page.sees("1 to 1 of 1", "Retention")
    page.element("main tbody a").click()
    page.sees("sample/standalone/ns1", "0 subscriptions", "No schema")


def test_a_topic_that_goes_away_is_told_of(page: Page, served: Server) -> None:
    assert served.ask("PUT", "/admin/v2/persistent/public/default/passing")[0] == 204
    page.go("/topic/persistent/public/default/passing")
    # With all that is asked for once: a question after the deletion would be in the browser's log.
    page.sees("passing", "0 subscriptions", "No schema", "Ledgers and cursors", "Grant")
    assert served.ask("DELETE", "/admin/v2/persistent/public/default/passing")[0] == 204
    page.sees("Not found", "stopped")


def test_policies_are_set_and_taken_back(page: Page, served: Server) -> None:
    page.go("/namespace/public/default")
    page.sees("Time to live", "Publish rate", "more policies")
    page.push("Set", "dl [data-key='Time to live']")
    page.fill(seconds="7200")
    page.push("Set", "dialog")
    page.sees("Time to live was set", "2 h", "set here")
    rest = "/admin/v2/namespaces/public/default"
    assert _asked(served, f"{rest}/messageTTL") == 7200
    # A topic has what its namespace says, until it has its own.
    place = "/topic/persistent/public/default/orders"
    page.go(place)
    page.sees("Time to live", "2 h")
    page.misses("set here")
    for name, values, words in (
        ("Publish rate", {"messages": "50", "size": "-1"}, "50 messages per second"),
        ("Dispatch rate", {"messages": "-1", "size": "1000000", "period": "10"}, "1 MB per 10 s"),
        (
            "Backlog age quota",
            {"seconds": "3600", "policy": "producers are refused"},
            "60 min, then producers",
        ),
        ("Producers", {"most": "7"}, "7"),
        ("Retention", {"time": "-1", "size": "100"}, "forever, 105 MB"),
    ):
        page.push("Set", f"dl [data-key='{name}']")
        page.fill(**values)
        page.push("Set", "dialog")
        page.sees(f"{name} was set", words)
    own = "/admin/v2/persistent/public/default/orders"
    assert _asked(served, f"{own}/publishRate")["publishThrottlingRateInMsg"] == 50
    assert _asked(served, f"{own}/dispatchRate")["ratePeriodInSecond"] == 10
    assert _asked(served, f"{own}/backlogQuotaMap")["message_age"]["policy"] == "producer_exception"
    assert _asked(served, f"{own}/maxProducers") == 7
    assert _asked(served, f"{own}/retention") == {"retentionTimeInMinutes": -1, "retentionSizeInMB": 100}
    for name in ("Publish rate", "Dispatch rate", "Backlog age quota", "Producers", "Retention"):
        page.push("Remove", f"dl [data-key='{name}']")
        page.push("Remove", "dialog")
        page.sees(f"{name} was removed")
    page.misses("set here")
    assert _asked(served, f"{own}/backlogQuotaMap") == {}
    page.element("[data-key='other policies'] summary").click()
    page.sees("Schema compatibility", "full", "Copies of entries")
    page.go("/namespace/public/default")
    page.push("Remove", "dl [data-key='Time to live']")
    page.push("Remove", "dialog")
    page.sees("Time to live was removed")
    assert served.ask("GET", f"{rest}/messageTTL") == (200, b"")


@pytest.mark.parametrize("place", ["namespace/public/default", "topic/persistent/public/default/orders"])
def test_permissions_are_granted_changed_and_revoked(page: Page, served: Server, place: str) -> None:
    rest = place.replace("namespace/", "/admin/v2/namespaces/").replace("topic/", "/admin/v2/")
    page.go(f"/{place}")
    page.sees("Permissions", "No permissions are granted")
    page.push("Grant")
    page.fill(role="a clerk")
    page.push("Grant", "dialog")
    page.sees("Choose what the role may do")
    for action in ("produce", "packages"):
        page.element(f"dialog [name=may-{action}]").click()
    page.push("Grant", "dialog")
    page.sees("a clerk may produce, packages")
    assert _asked(served, f"{rest}/permissions") == {"a clerk": ["produce", "packages"]}
    page.push("Change", "[data-key='a clerk']")
    page.element("dialog [name=may-packages]").click()
    page.element("dialog [name=may-consume]").click()
    page.push("Grant", "dialog")
    page.sees("a clerk may produce, consume")
    assert _asked(served, f"{rest}/permissions") == {"a clerk": ["produce", "consume"]}
    page.push("Revoke", "[data-key='a clerk']")
    assert not page.element("dialog button.danger").is_enabled()
    page.fill(typed="a clerk")
    page.push("Revoke", "dialog")
    page.sees("The permissions of a clerk on", "No permissions are granted")
    assert _asked(served, f"{rest}/permissions") == {}


def test_groups_come_change_and_bound_namespaces(page: Page, served: Server) -> None:
    groups, group = "/admin/v2/resourcegroups", "/admin/v2/namespaces/public/default/resourcegroup"
    page.go("/namespace/public/default")
    page.sees("Resource group: none", "There are no groups yet")
    page.go("/groups")
    page.sees("No groups")
    page.push("Create group")
    page.fill(name="paying", publishRateInMsgs="50", dispatchRateInBytes="1000000")
    page.push("Create", "dialog")
    page.sees("paying was created", "50 messages per second", "1 MB per second")
    assert _asked(served, f"{groups}/paying")["dispatchRateInBytes"] == 1_000_000
    page.push("Create group")
    page.fill(name="paying")
    page.push("Create", "dialog")
    page.sees("paying already exists")
    page.push("Cancel", "dialog")
    page.push("Change", "[data-key=paying]")
    page.fill(publishRateInMsgs="-1")
    page.push("Change", "dialog")
    page.sees("paying was changed", "no limit")
    assert _asked(served, f"{groups}/paying")["dispatchRateInBytes"] == 1_000_000
    page.go("/namespace/public/default")
    page.push("Put into a group")
    page.push("Put", "dialog")
    page.sees("public/default is in paying", "Resource group: paying")
    assert _asked(served, group) == "paying"
    page.go("/groups")
    page.push("Delete", "[data-key=paying]")
    page.fill(typed="paying")
    page.push("Delete", "dialog")
    page.sees("ResourceGroup is in use")
    page.go("/namespace/public/default")
    page.push("Remove from group")
    page.push("Remove from group", "dialog")
    page.sees("public/default is in no group", "Resource group: none")
    assert served.ask("GET", group) == (200, b"")
    page.go("/groups")
    page.push("Delete", "[data-key=paying]")
    assert not page.element("dialog button.danger").is_enabled()
    page.fill(typed="paying")
    page.push("Delete", "dialog")
    page.sees("paying was deleted", "No groups")
    assert _asked(served, groups) == []
    # What the broker refused is in the console, and nothing else.
    assert all("412" in line["message"] for line in page.browser.get_log("browser"))


def test_quotas_are_set_for_all_bundles_and_for_one(page: Page, served: Server) -> None:
    quotas = "/admin/v2/resource-quotas"
    page.go("/groups")
    page.sees("Resource quotas", "40 messages")
    page.push("Set quota")
    page.fill(msgRateIn="70.5", memory="100")
    page.push("Set", "dialog")
    page.sees("The quota was set", "70.5 messages")
    everywhere = _asked(served, quotas)
    assert (everywhere["msgRateIn"], everywhere["msgRateOut"], everywhere["memory"]) == (70.5, 120, 100)
    page.go("/namespace/public/default")
    page.push("Quotas of its bundles")
    page.sees("70.5", "120")
    page.misses("Reset to default")
    bundle = page.element("[aria-label='Resource quotas'] tbody tr").get_attribute("data-key")
    page.push("Set", f"[data-key='{bundle}']")
    page.fill(msgRateOut="500")
    page.push("Set", "dialog")
    page.sees("The quota was set", "500", "Reset to default")
    assert _asked(served, f"{quotas}/public/default/{bundle}")["msgRateOut"] == 500
    page.push("Reset to default", f"[data-key='{bundle}']")
    page.push("Reset to default", "dialog")
    page.sees(f"The default quota applies to {bundle}")
    page.misses("Reset to default")
    assert _asked(served, f"{quotas}/public/default/{bundle}") == everywhere


def test_what_a_namespace_grants_is_not_taken_back_at_a_topic(page: Page, served: Server) -> None:
    granted = "/admin/v2/namespaces/public/default/permissions/auditor"
    assert served.ask("POST", granted, '["consume"]')[0] == 204
    page.go("/topic/persistent/public/default/orders")
    page.sees("auditor", "by the namespace")
    assert "Revoke" not in page.element("[data-key=auditor]").text
    assert served.ask("DELETE", granted)[0] == 204


def test_ledgers_and_cursors_of_a_topic(page: Page, served: Server) -> None:
    told = _asked(served, "/admin/v2/persistent/public/default/orders/internalStats")
    page.go("/topic/persistent/public/default/orders")
    page.sees("Ledgers and cursors", f"last entry {told['lastConfirmedEntry']}")
    page.push("Ledgers, newest first")
    page.push("Cursors")
    ledger = page.element("[aria-label=Ledgers] tbody tr").text
    assert ledger.startswith(f"{told['ledgers'][-1]['ledgerId']}open {told['currentLedgerEntries']} ")
    assert told["cursors"]["billing"]["markDeletePosition"] in page.element("[aria-label=Cursors]").text
    client = pulsar.Client(served.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    producer = client.create_producer("public/default/orders", schema=pulsar.schema.StringSchema())
    producer.send("one more")
    client.close()
    page.push("Look again")
    ledger_id, entry_id = map(int, told["lastConfirmedEntry"].split(":"))
    page.sees(f"last entry {ledger_id}:{entry_id + 1}")
    assert page.element("[data-key=ledgers]").get_attribute("open") is not None


_PLACES = (
    "/",
    "/topics",
    "/topic/persistent/public/default/orders",
    "/namespace/public/default",
    "/namespaces",
    "/groups",
    "/storage",
    "/nowhere",
)


def _check_contrast(page: Page, place: str) -> None:
    found = page.browser.execute_script(_CONTRAST)
    assert found["looked"] > 10, place
    assert found["faint"] == [], place


@contextmanager
def _phone(browser: webdriver.Chrome) -> Iterator[None]:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast_and_fits_a_phone(page: Page, scheme: str) -> None:
    feature = {"name": "prefers-color-scheme", "value": scheme}
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    for place in _PLACES:
        page.go(place)
        page.waiting.until(lambda _: page.element("#live").get_attribute("data-state") != "connecting")
        page.misses("Loading…")
        for details in page.browser.find_elements(By.CSS_SELECTOR, "details:not([open]) > summary"):
            details.click()
        _check_contrast(page, place)
        with _phone(page.browser):
            _check_contrast(page, place)
            wide = page.browser.execute_script("return document.documentElement.scrollWidth")
            assert wide == 390, place
        if place == "/topics":
            page.press("?")
            page.sees("move between lines")
            _check_contrast(page, "help")
            page.press(Keys.ESCAPE)
            page.push("Create topic")
            _check_contrast(page, "dialog")
    page.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    page.go("/")
    other = "dark" if scheme == "light" else "light"
    while other not in page.element("#theme").text:
        page.element("#theme").click()
    ground = page.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(16, 21, 28)" if other == "dark" else "rgb(255, 255, 255)")
    page.browser.execute_script("localStorage.clear()")


def _head(url: str, **headers: str) -> tuple[int, Any]:
    asked = urllib.request.Request(
        url, headers={name.replace("_", "-"): value for name, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(asked) as answer:
            return answer.status, answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.headers


def test_its_files_are_strict_tagged_and_small(served: Server) -> None:
    status, headers = _head(f"{served.http_url}/", Accept_Encoding="gzip")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert headers["Content-Security-Policy"] == _POLICY
    assert headers["Content-Encoding"] == "gzip"
    assert _head(f"{served.http_url}/", If_None_Match=headers["ETag"])[0] == 304
    for name, kind in (
        ("start.js", "text/javascript"),
        ("page.css", "text/css"),
        ("icon.svg", "image/svg+xml"),
    ):
        _, of_part = _head(f"{served.http_url}/dashboard/{name}")
        assert of_part["Content-Type"].startswith(kind)
        assert of_part["Content-Security-Policy"] == _POLICY
    for name in ("nothing.js", "..%2Ffiles.py", "%2E%2E%2F__init__.py"):
        assert _head(f"{served.http_url}/dashboard/{name}")[0] == 404


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
    server.start()
    yield server
    server.close()


def test_who_asks_is_proven_by_a_token(secured: SecuredServer, browser: webdriver.Chrome) -> None:
    def as_admin(method: str, path: str, body: str = "") -> None:
        headers = {"Authorization": f"Bearer {token(SUPERUSER)}", "Content-Type": "application/json"}
        asked = urllib.request.Request(f"{secured.http_url}{path}", body.encode(), headers, method=method)
        with urllib.request.urlopen(asked):
            pass

    as_admin("POST", "/admin/v2/namespaces/public/default/permissions/clerk", '["consume"]')
    as_admin("PUT", "/admin/v2/persistent/public/default/orders")
    page = Page(browser, secured.http_url)
    page.go("/")
    page.sees("This broker requires authentication.")
    page.fill(token="no token")
    page.push("Use it", "dialog")
    page.sees("Not allowed")
    page.push("Use a token")
    page.fill(token=token("clerk"))
    page.push("Use it", "dialog")
    # The token goes with the tab, and the only namespace that it allows is shown.
    page.sees("1 to 1 of 1", "orders", "it is not an administrator of the tenant")
    page.element("main tbody a").click()
    page.sees("0 subscriptions")
    page.push("Delete")
    page.fill(typed="orders")
    page.push("Delete", "dialog")
    page.waiting.until(lambda _: "may not" in page.element(".failed").text)
    page.push("Cancel", "dialog")
    page.push("Token: set")
    page.fill(token=token(SUPERUSER))
    page.push("Use it", "dialog")
    page.browser.get(f"{secured.http_url}/#/")
    page.sees("Brokers of the cluster", "this broker")
    assert _head(f"{secured.http_url}/dashboard/events/broker")[0] == 401
    # What the broker refused is in the console, and nothing else.
    lines = page.browser.get_log("browser")
    assert lines
    assert all("401" in line["message"] or "403" in line["message"] for line in lines), lines


def test_it_can_be_switched_off(start_server: Callable[..., Server]) -> None:
    server = start_server(magnetarDashboardEnabled="false")
    for path in ("/", "/dashboard/start.js", "/dashboard/events/broker"):
        assert server.ask("GET", path)[0] == 404
