"""What the page shows of authorization: whether it is on, and where a role may go."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium
from dashboard_page import SCHEMES, WIDTHS, Page
from secured import SUPERUSER, SecuredServer, token
from selenium import webdriver
from server import Server

_CONTRAST = (Path(__file__).parent / "contrast.js").read_text()
_PLACES = ("/namespace/public/default", "/topic/persistent/public/default/orders")


@pytest.fixture(scope="module")
def open_server(start_server: Callable[..., Server]) -> Server:
    # The topic has no clients, and must not be deleted for that.
    server = start_server(brokerDeleteInactiveTopicsEnabled="false")
    assert server.ask("PUT", "/admin/v2/persistent/public/default/orders")[0] == 204
    return server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"), brokerDeleteInactiveTopicsEnabled="false")
    server.start()
    _as_admin(server, "PUT", "/admin/v2/persistent/public/default/orders")
    yield server
    server.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        yield running


def _as_admin(server: SecuredServer, method: str, path: str, body: str = "") -> Any:
    headers = {"Authorization": f"Bearer {token(SUPERUSER)}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{server.http_url}{path}", body.encode(), headers, method=method)
    with urllib.request.urlopen(asked) as answer:
        return json.loads(answer.read() or "null")


def _as_role(page: Page, role: str) -> None:
    page.go("/nowhere")
    page.sees("Unknown page.")
    page.browser.execute_script(f"sessionStorage.setItem('magnetar.token', '{token(role)}')")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_permissions_say_whether_authorization_is_on(
    open_server: Server, secured: SecuredServer, browser: webdriver.Chrome, width: int, scheme: str
) -> None:
    browser.get_log("browser")
    for server, is_on in ((open_server, False), (secured, True)):
        page = Page(browser, server.http_url)
        page.appear(width, scheme)
        if is_on:
            _as_role(page, SUPERUSER)
        for place in _PLACES:
            page.go(place)
            if is_on:
                page.sees("Authorization is on", "only superusers and administrators of the tenant")
                assert "Authorization is off" not in page.text()
            else:
                page.sees("Authorization is off: everybody may do everything", "authorizationEnabled=true")
                assert "only superusers" not in page.text()
            page.check_fits(width)
            assert page.browser.execute_script(_CONTRAST)["faint"] == []
        page.check_console()


@pytest.fixture(scope="module")
def roles(secured: SecuredServer) -> None:
    """One role for one namespace, one for two, one for a topic, and one for nothing."""
    _as_admin(secured, "PUT", "/admin/v2/namespaces/public/second")
    _as_admin(secured, "PUT", "/admin/v2/persistent/public/second/bills")
    for place, role in (
        ("namespaces/public/default", "clerk"),
        ("namespaces/public/default", "auditor"),
        ("namespaces/public/second", "auditor"),
        ("persistent/public/second/bills", "biller"),
    ):
        _as_admin(secured, "POST", f"/admin/v2/{place}/permissions/{role}", '["consume"]')


@pytest.mark.usefixtures("roles")
@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_a_role_lands_where_it_may_be(
    secured: SecuredServer, browser: webdriver.Chrome, width: int, scheme: str
) -> None:
    page = Page(browser, secured.http_url)
    page.appear(width, scheme)
    _as_role(page, "clerk")
    for place in ("/", "/topics", "/namespaces"):
        page.go(place)
        page.sees("public/default", "1 to 1 of 1", "orders")
        assert page.browser.current_url.endswith("#/namespace/public/default")
    page.go("/storage")
    page.sees("Not allowed", "What you may see")
    _as_role(page, "biller")
    page.go("/")
    page.sees("bills", "0 subscriptions")
    assert page.browser.current_url.endswith("#/topic/persistent/public/second/bills")
    _as_role(page, "auditor")
    page.go("/")
    page.sees("Not allowed", "What you may see", "public/default", "public/second")
    page.check_fits(width)
    assert page.browser.execute_script(_CONTRAST)["faint"] == []
    page.element("main ul a[href$='public/second']").click()
    page.sees("1 to 1 of 1", "bills")
    _as_role(page, "nobody")
    page.go("/")
    page.sees("Not allowed", "Your role has no permission on any namespace or topic.")
    page.check_fits(width)
    # What the broker refused is in the console, and nothing else.
    lines = browser.get_log("browser")
    assert all("401" in line["message"] or "403" in line["message"] for line in lines), lines


@pytest.mark.usefixtures("roles")
def test_nobody_is_told_of_names_without_credentials(secured: SecuredServer) -> None:
    status, body = secured.ask("GET", "/dashboard/access/names")
    assert status == 401, body
