"""The HTTP interface tells what it is: to programs, and to people on a page in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from chromium import chromium
from openapi_spec_validator import validate
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait
from server import Server

from magnetar.http.endpoints.table import WHOLE

_SECONDS = 30
_LEFT_OUT = "ffload|/functions|/worker|/s(ink|ource)s?/|/transactions/|/mbeans|/alloc|/bookieo"
"""Whose answer is always a 501."""


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Server]) -> Server:
    return start_server()


@pytest.fixture(scope="module")
def description(served: Server) -> dict[str, Any]:
    with urllib.request.urlopen(f"{served.http_url}/openapi.json") as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def form_of(value: object) -> object:
    """What the validator looks at, without texts."""
    if isinstance(value, dict):
        texts = ("operationId", "summary", "description", "tags")
        return {name: form_of(inner) for name, inner in value.items() if name not in texts}
    if isinstance(value, list):
        return [form_of(inner) for inner in value]
    return value


def test_it_is_valid_and_all_of_it_is_there(description: dict[str, Any]) -> None:
    kept = description["paths"]
    if "MAGNETAR_SCHEMATHESIS" not in os.environ:
        # Paths of one form are validated once: all of them take the validator half a minute.
        by_form: dict[str, str] = {}
        for path, methods in kept.items():
            by_form.setdefault(json.dumps(form_of(methods), sort_keys=True), path)
        kept = {path: kept[path] for path in by_form.values()}
    validate({**description, "paths": kept})
    paths = {path for row in WHOLE for path in (row.path, *row.aliases)}
    assert set(description["paths"]) == paths
    rows = sum(1 + len(row.aliases) for row in WHOLE)
    operations = [each for methods in description["paths"].values() for each in methods.values()]
    assert len({each["operationId"] for each in operations}) == len(operations) == rows
    named = description["paths"]["/admin/v2/persistent/{tenant}/{namespace}/{topic}/stats"]["get"]
    assert named["operationId"] == "getPersistentStats"
    assert all(each["operationId"].isidentifier() for each in operations)
    retention = description["paths"]["/admin/v2/namespaces/{tenant}/{namespace}/retention"]["post"]
    assert retention["requestBody"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/RetentionPolicies"
    }


@pytest.fixture
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1000, 800) as running:
        yield running


def test_the_page_finds_and_shows(served: Server, browser: webdriver.Chrome) -> None:
    browser.get(f"{served.http_url}/openapi")
    waiting = WebDriverWait(browser, _SECONDS)
    waiting.until(lambda page: page.find_elements(By.TAG_NAME, "details"))
    everything = len(browser.find_elements(By.TAG_NAME, "details"))
    assert everything == len(WHOLE)
    browser.switch_to.active_element.send_keys("post namespaces retention")
    waiting.until(lambda page: len(page.find_elements(By.TAG_NAME, "details")) == 1)
    # By keyboard alone.
    browser.find_element(By.ID, "filter").send_keys(Keys.TAB, Keys.TAB)
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    waiting.until(lambda page: "retentionSizeInMB" in page.find_element(By.TAG_NAME, "details").text)
    browser.find_element(By.ID, "older").click()
    waiting.until(lambda page: len(page.find_elements(By.TAG_NAME, "details")) == 2)
    assert browser.get_log("browser") == []


def test_nothing_of_it_comes_from_elsewhere(served: Server) -> None:
    with urllib.request.urlopen(f"{served.http_url}/openapi") as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
        assert b"http://" not in answer.read().replace(b"http-equiv", b"")


def test_what_somebody_has_is_not_sent_again(served: Server, description: dict[str, Any]) -> None:
    with httpx.Client(base_url=served.http_url) as client:
        schema = {"type": "STRING", "schema": "", "properties": {}}
        assert client.post("/admin/v2/schemas/public/default/kept/schema", json=schema).status_code == 200
        for path in (
            "/openapi.json",
            "/openapi",
            "/admin/v2/clusters/standalone",
            "/admin/v2/namespaces/public",
            "/admin/v2/namespaces/public/default",
            "/admin/v2/schemas/public/default/kept/schema/0",
        ):
            known = client.get(path).headers["ETag"]
            again = client.get(path, headers={"If-None-Match": f'"other", W/{known}'})
            assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", known)
            assert client.head(path, headers={"If-None-Match": known}).status_code == 304
        retention = "/admin/v2/namespaces/public/default/retention"
        told = description["paths"]["/admin/v2/namespaces/{tenant}/{namespace}/retention"]["get"]
        assert "304" in told["responses"]
        values = [{"retentionTimeInMinutes": minutes, "retentionSizeInMB": 1} for minutes in (1, 2)]
        tags = []
        for value in (*values, values[0]):
            assert client.post(retention, json=value).status_code == 204
            given = client.get(retention, headers={"If-None-Match": tags[-1] if tags else ""})
            assert given.json() == value
            tags.append(given.headers["ETag"])
        # The same value has the same tag, whatever was between.
        assert tags[0] == tags[2] != tags[1]
        stats = client.get("/admin/v2/persistent/public/default/kept/stats")
        assert "ETag" not in stats.headers


@pytest.mark.skipif("MAGNETAR_SCHEMATHESIS" not in os.environ, reason="takes minutes (make soak)")
def test_whatever_it_allows_is_answered_as_it_says(served: Server) -> None:
    """But for what is refused by name, with 501; shutting down would end it."""
    ran = subprocess.run(
        [
            "schemathesis",
            "run",
            f"{served.http_url}/openapi.json",
            f"--exclude-path-regex=^/ws/|shutdown|shadowTopics|bookieAffinity|{_LEFT_OUT}",
            "--checks=not_a_server_error,status_code_conformance",
            "--phases=fuzzing",
            "--max-examples=5",
            "--no-shrink",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
