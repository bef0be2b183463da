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
    server = start_server()
    assert server.ask("PUT", "/admin/v2/persistent/public/default/orders")[0] == 204
    return server


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(tmp_path_factory.mktemp("secured"))
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
