"""What is forwarded over HTTP, where it goes, and what brokers are told of who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from magnetar.config.proxy import ReverseProxy
from magnetar.http.engine.message import Request, Response
from magnetar.io.interfaces import StreamProtocol
from magnetar.proxy.brokers import AllowedTargets, NamedBrokers
from magnetar.proxy.forwarding import Forwarding, ForwardingOptions
from magnetar.proxy.web_client import WebNetworks
from magnetar.security.authentication import Principal


class Web:
    """A network whose servers answer by a table, ``host:port`` to the bytes of an answer."""

    def __init__(self, loop: Any, answers: Mapping[str, bytes]) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self._loop = loop
        self._answers = answers

    async def connect(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> Any:
        answer = self._answers.get(f"{host}:{port}")
        if answer is None:
            raise ConnectionRefusedError(f"{host}:{port}")
        protocol = factory()
        protocol.connection_made(_Wire(self, f"{host}:{port}"))
        self._loop.call_soon(protocol.data_received, answer)
        return None, protocol


class _Wire:
    def __init__(self, web: Web, place: str) -> None:
        self._web, self._place = web, place

    def write(self, data: bytes) -> None:
        self._web.heard.append((self._place, data))

    def abort(self) -> None:
        """Nothing is open."""


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def run(
    work: Callable[[Forwarding, Web], Coroutine[Any, Any, None]],
    answers: Mapping[str, bytes],
    *,
    forward_credentials: bool = False,
    most: int = 10,
) -> None:
    async def whole() -> None:
        loop = asyncio.get_running_loop()
        web = Web(loop, answers)
        options = ForwardingOptions(
            tls=False,
            seconds=5,
            most=most,
            forward_credentials=forward_credentials,
            functions_url="http://f:1",
            reverse=[ReverseProxy("/x", "http://o:1/y")],
        )

        async def proof() -> Mapping[str, str]:
            return {"Authorization": "Bearer proxy"}

        networks = WebNetworks(web, web)
        named = NamedBrokers("", "", "http://a:1,b:1", "")
        allowed = AllowedTargets(hosts="a,b,c")
        await work(Forwarding(loop, options, named, allowed, networks, networks, proof), web)

    asyncio.run(whole())


def asked(path: str, method: str = "GET", **headers: str) -> Request:
    return Request(method, path.partition("?")[0], target=path, headers=headers)


def test_what_is_neither_administration_nor_lookup_is_not_forwarded() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        for path in ("/", "/metrics", "/administration", "/xy"):
            assert await forwarding.answer(asked(path), None) is None

    run(work, {})


def test_brokers_are_asked_in_turn_and_the_dead_are_left() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        for _ in range(2):
            found = await forwarding.answer(asked("/admin/v2/x?a=b&a=c", "POST"), None)
            assert found == Response(200, b"ok", "text/plain", [])
        assert [place for place, _ in web.heard] == ["b:1", "b:1"]
        assert web.heard[0][1].startswith(b"POST /admin/v2/x?a=b&a=c HTTP/1.1\r\nHost: b:1\r\n")

    run(work, {"b:1": answer(200, b"ok", **{"Content-Type": "text/plain"})})


def test_redirects_are_followed_to_brokers_and_nowhere_else() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/admin/v2/x", "DELETE"), None)
        assert found is not None
        assert (found.status, found.body) == (200, b"there")
        assert [data.split(b" ")[:2] for _, data in web.heard] == [
            [b"DELETE", b"/admin/v2/x"],
            [b"DELETE", b"/y?z"],
        ]

    run(work, {"a:1": answer(307, Location="http://c:1/y?z"), "c:1": answer(200, b"there")})

    async def denied(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/admin/v2/x"), None)
        assert found is not None
        assert found.status == 502
        assert [place for place, _ in web.heard] == ["a:1"]

    for place in ("http://evil:1/y", "http://evil:port/y", "http://[evil/y", "//a:0/y"):
        run(denied, {"a:1": answer(307, Location=place), "evil:1": answer(200)})


@pytest.mark.parametrize(
    "path",
    [
        "/admin/../metrics",
        "/admin/v2/%2e%2E/metrics",
        "/admin/..%2Fmetrics",
        "/admin/..;a=b/metrics",
        "/x/./a",
        "/x/..",
    ],
)
def test_no_path_leads_out_of_what_is_forwarded(path: str) -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked(path), None)
        assert found is not None
        assert found.status == 400
        assert not web.heard
        found = await forwarding.answer(asked("/admin/v2/persistent/a/b/..c?d=.."), None)
        assert found is not None
        assert found.status == 200

    run(work, {"a:1": answer(200), "o:1": answer(200)})


def test_the_proxy_speaks_for_its_client_with_its_own_proof() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        headers = {"authorization": "Bearer client", "x-original-principal": "admin", "connection": "upgrade"}
        await forwarding.answer(asked("/admin/v2/x", **headers), Principal("user", "token"))
        sent = web.heard[0][1].decode()
        assert "Authorization: Bearer proxy\r\n" in sent
        assert "X-Original-Principal: user\r\n" in sent
        assert "client" not in sent
        assert "admin\r\n" not in sent
        assert "upgrade" not in sent

    run(work, {"a:1": answer(200)})


@pytest.mark.parametrize("principal", [None, Principal("user", "token")])
def test_proofs_are_passed_on_where_that_is_wanted_but_never_a_name(principal: Principal | None) -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        headers = {"authorization": "Bearer client", "x-original-principal": "admin"}
        await forwarding.answer(asked("/admin/v2/x", **headers), principal)
        sent = web.heard[0][1].decode()
        assert "authorization: Bearer client\r\n" in sent
        assert "riginal" not in sent

    run(work, {"a:1": answer(200)}, forward_credentials=True)


def test_functions_and_reverse_proxies_have_places_of_their_own() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        await forwarding.answer(asked("/admin/v3/functions/t/n"), None)
        await forwarding.answer(asked("/x/z?q"), None)
        assert [(place, data.split(b" ")[1]) for place, data in web.heard] == [
            ("f:1", b"/admin/v3/functions/t/n"),
            ("o:1", b"/y/z?q"),
        ]

    run(work, {"f:1": answer(200), "o:1": answer(200)})


def test_without_anybody_who_answers_it_is_said_so() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/admin/v2/x"), None)
        assert found is not None
        assert found.status == 502
        other = await forwarding.answer(asked("/x"), None)
        assert other is not None
        assert other.status == 502

    run(work, {"a:1": b"nonsense\r\n\r\n"})


def test_requests_in_progress_have_a_bound() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/admin/v2/x"), None)
        assert found is not None
        assert found.status == 503
        assert web.heard == []

    run(work, {"a:1": answer(200)}, most=0)
