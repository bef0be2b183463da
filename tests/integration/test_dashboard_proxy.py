"""The page and ``magnetar top`` through ``magnetar proxy``: an operator needs one address."""

from __future__ import annotations

import json
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pulsar
import pytest
from chromium import chromium
from dashboard_page import Page
from proxy_process import ProxyProcess
from secured import SUPERUSER, SecuredServer, token
from selenium import webdriver
from server import Server
from terminal import Terminal

_PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
_TOPIC = "/topic/persistent/public/default/orders"


@pytest.fixture(scope="module")
def broker(start_server: Callable[..., Server]) -> Server:
    return start_server(statsUpdateFrequencyInSecs=1)


@pytest.fixture(scope="module")
def proxy(broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyProcess]:
    running = ProxyProcess(
        tmp_path_factory.mktemp("proxy"),
        brokerServiceURL=broker.url,
        brokerWebServiceURL=broker.http_url,
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    server = SecuredServer(
        tmp_path_factory.mktemp("secured"), proxyRoles="proxy", superUserRoles=f"{SUPERUSER},proxy"
    )
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module", params=["false", "true"], ids=["principal", "credentials"])
def tls_proxy(
    request: pytest.FixtureRequest, secured: SecuredServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxyProcess]:
    """TLS and tokens on both sides; brokers get the client's role, or its credentials, too."""
    pair = secured.authority.server()
    running = ProxyProcess(
        tmp_path_factory.mktemp("proxy"),
        brokerServiceURLTLS=secured.tls_url,
        brokerWebServiceURLTLS=secured.https_url,
        tlsEnabledWithBroker="true",
        brokerClientTrustCertsFilePath=secured.authority.trust,
        tlsHostnameVerificationEnabled="true",
        brokerClientAuthenticationPlugin=_PLUGIN,
        brokerClientAuthenticationParameters=f"token:{token('proxy')}",
        servicePortTls=0,
        webServicePortTls=0,
        tlsCertificateFilePath=pair.certificate,
        tlsKeyFilePath=pair.key,
        authenticationEnabled="true",
        authenticationProviders="org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        tokenSecretKey=f"file://{secured.folder}/secret",
        superUserRoles=SUPERUSER,
        forwardAuthorizationCredentials=request.param,
    )
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    with chromium(1280, 900) as running:
        # The issuer of the servers' certificates is unknown to the machine.
        running.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": True})
        yield running


def _status(
    method: str, url: str, headers: dict[str, str], body: bytes = b"", trust: ssl.SSLContext | None = None
) -> int:
    asked = urllib.request.Request(url, body, headers, method=method)
    try:
        with urllib.request.urlopen(asked, context=trust) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_page_shows_and_changes_through_the_proxy(
    broker: Server, proxy: ProxyProcess, browser: webdriver.Chrome
) -> None:
    browser.get_log("browser")
    page = Page(browser, proxy.http_url)
    page.go("/namespace/public/default")
    page.push("Create topic")
    page.fill(local="orders")
    page.push("Create", "dialog")
    page.sees("orders", "0 subscriptions")
    client = pulsar.Client(proxy.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    client.subscribe("public/default/orders", "billing").close()
    producer = client.create_producer("public/default/orders")
    for number in range(3):
        producer.send(b"order %d" % number)
    page.go(_TOPIC)
    # Events arrive while the page is open, and messages when they are asked for.
    page.sees("billing", "live", "1 producer")
    producer.send(b"order 3")
    page.misses("3 entries")
    page.push("Show messages")
    page.sees("order 3")
    page.go("/")
    page.sees("Subscriptions", "live", "billing", "this broker")
    page.go("/storage")
    page.sees("Storage", "public/default")
    assert browser.execute_script("return location.host") == proxy.http_url.removeprefix("http://")
    page.check_console()
    client.close()


def test_a_page_that_names_an_unknown_broker_says_what_to_do(
    proxy: ProxyProcess, broker: Server, browser: webdriver.Chrome
) -> None:
    page = Page(browser, proxy.http_url)
    browser.get(f"{proxy.http_url}/?broker=elsewhere:8080#/")
    page.sees("Not found", "The proxy knows no broker 'elsewhere:8080'", "metadataStoreUrl")
    browser.get("about:blank")
    browser.get(f"{proxy.http_url}/?broker={broker.http_url.removeprefix('http://')}#/")
    page.sees("live", "this broker")
    browser.get_log("browser")


def test_pages_of_other_origins_change_nothing_through_the_proxy(proxy: ProxyProcess) -> None:
    path = "/admin/v2/persistent/public/default/foreign"
    for origin, status in (("https://elsewhere.example", 403), (proxy.http_url, 204)):
        assert _status("PUT", proxy.http_url + path, {"Origin": origin}) == status


def test_top_is_drawn_through_the_proxy(broker: Server, proxy: ProxyProcess) -> None:
    assert broker.ask("PUT", "/admin/v2/persistent/public/default/watched")[0] in (204, 409)
    environment = {**os.environ, "PULSAR_ADMIN_URL": proxy.http_url}
    environment.pop("PULSAR_CLIENT_CONF", None)
    with Terminal("magnetar", "top", environment=environment) as terminal:
        terminal.sees("public/default/watched", "q end")
        assert broker.ask("PUT", "/admin/v2/persistent/public/default/watched-later")[0] == 204
        terminal.sees("public/default/watched-later")
        broker.restart(kill=True)
        terminal.sees("public/default/watched", "q end", without="retrying")
        terminal.type("q")
        assert terminal.ends() == 0
    for name, code in ((broker.http_url.removeprefix("http://"), 0), ("elsewhere:8080", 1)):
        command = [sys.executable, "-m", "magnetar", "top", "--once", "--broker", name]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert (ended.returncode, "knows no broker 'elsewhere:8080'" in ended.stderr) == (code, bool(code))


def test_the_page_over_tls_with_tokens_shows_what_the_role_may_see(
    secured: SecuredServer, tls_proxy: ProxyProcess, browser: webdriver.Chrome
) -> None:
    trust = ssl.create_default_context(cafile=secured.authority.trust)
    url = tls_proxy.urls["https"]
    for method, path, body in (
        ("PUT", "persistent/public/default/orders", b""),
        ("POST", "namespaces/public/default/permissions/clerk", b'["consume"]'),
    ):
        headers = {"Authorization": f"Bearer {token(SUPERUSER)}", "Content-Type": "application/json"}
        status = _status(method, f"{url}/admin/v2/{path}", headers, body, trust)
        # The topic is there since the test with the other proxy.
        assert status in (204, 409)
    browser.get_log("browser")
    page = Page(browser, url)
    page.go("/nowhere")
    browser.execute_script("sessionStorage.clear()")
    page.go("/")
    page.sees("This broker requires authentication")
    page.fill(token=token(SUPERUSER))
    page.push("Use it", "dialog")
    page.sees("Brokers of the cluster", "live")
    page.go(_TOPIC)
    page.sees("Authorization is on", "clerk", "live")
    # The role of the client counts, not the proxy's, which may do everything.
    browser.execute_script(f"sessionStorage.setItem('magnetar.token', '{token('clerk')}')")
    page.go("/")
    page.sees("public/default", "1 to 1 of 1", "orders")
    assert browser.current_url.endswith("#/namespace/public/default")
    page.go("/storage")
    page.sees("Not allowed", "What you may see")
    browser.execute_script(f"sessionStorage.setItem('magnetar.token', '{token('nobody')}')")
    page.go(_TOPIC)
    page.sees("Not allowed", "Your role has no permission on any namespace or topic.")
    lines = browser.get_log("browser")
    assert all("401" in line["message"] or "403" in line["message"] for line in lines), lines


def _top(url: str, secured: SecuredServer, role: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "magnetar", "top", "-o", "json", "--admin-url", url]
    command += ["--auth-plugin", "token", "--auth-params", f"token:{token(role)}"]
    command += ["--tls-trust-cert-path", str(secured.authority.trust)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_top_over_tls_with_tokens(secured: SecuredServer, tls_proxy: ProxyProcess) -> None:
    url = tls_proxy.urls["https"]
    ended = _top(url, secured, SUPERUSER)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["broker"]["cluster"] == "standalone"
    ended = _top(url, secured, "nobody")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "Only superusers may get load" in ended.stderr
