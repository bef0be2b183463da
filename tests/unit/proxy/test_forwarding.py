"""What is forwarded over HTTP, where it goes, and what brokers are told of who asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from magnetar.config.proxy import ReverseProxy
from magnetar.http.engine.message import Abandoned, Request, Response
from magnetar.io.interfaces import StreamProtocol
from magnetar.proxy.brokers import AllowedTargets, NamedBrokers
from magnetar.proxy.forwarding import Forwarding, ForwardingOptions
from magnetar.proxy.web_client import WebNetworks
from magnetar.security.authentication import Principal


class Web:
    """A network whose servers answer by a table, ``host:port`` to the bytes of an answer."""

    def __init__(self, loop: Any, answers: Mapping[str, bytes]) -> None:
        self.heard: list[tuple[str, bytes]] = []
        self.aborted: list[str] = []
        self.held: list[bool] = []
        """Whether reading was paused, at each change."""
        self.opened: dict[str, StreamProtocol] = {}
        self._loop = loop
        self._answers = answers

    async def connect(self, host: str, port: int, factory: Callable[[], StreamProtocol]) -> Any:
        answer = self._answers.get(f"{host}:{port}")
        if answer is None:
            raise ConnectionRefusedError(f"{host}:{port}")
        protocol = self.opened[f"{host}:{port}"] = factory()
        protocol.connection_made(_Wire(self, f"{host}:{port}"))
        self._loop.call_soon(protocol.data_received, answer)
        return None, protocol


class _Wire:
    def __init__(self, web: Web, place: str) -> None:
        self._web, self._place = web, place

    def write(self, data: bytes) -> None:
        self._web.heard.append((self._place, data))

    def abort(self) -> None:
        self._web.aborted.append(self._place)

    def is_closing(self) -> bool:
        return self._place in self._web.aborted

    def pause_reading(self) -> None:
        self._web.held.append(True)

    def resume_reading(self) -> None:
        self._web.held.append(False)


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body


def run(
    work: Callable[[Forwarding, Web], Coroutine[Any, Any, None]],
    answers: Mapping[str, bytes],
    *,
    forward_credentials: bool = False,
    most: int = 10,
    seconds: float = 5,
) -> None:
    async def whole() -> None:
        loop = asyncio.get_running_loop()
        web = Web(loop, answers)
        options = ForwardingOptions(
            tls=False,
            seconds=seconds,
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
        for path in ("/metrics", "/administration", "/xy", "/dashboards", "/openapi.jsonx", "/index.html"):
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


_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def piece(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def test_events_are_passed_on_while_they_arrive() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/dashboard/events/broker"), None)
        assert found is not None
        assert (found.status, found.body, found.content_type) == (200, b"", "text/event-stream")
        assert found.headers == [("Magnetar-Broker", "a:1")]
        assert found.streamed is not None
        assert await found.streamed.next() == b"data: 1\n\n"
        refused = await forwarding.answer(asked("/admin/v2/x"), None)
        assert refused is not None
        # It counts as a request in progress until its end.
        assert refused.status == 503
        waiting = asyncio.ensure_future(found.streamed.next())
        await asyncio.sleep(0)
        web.opened["a:1"].data_received(piece(b"data: 2\n\n") + piece(b"x" * (1 << 20)))
        assert web.held == [True]
        assert await waiting == b"data: 2\n\n" + b"x" * (1 << 20)
        assert web.held == [True, False]
        web.opened["a:1"].data_received(b"0\r\n\r\n")
        assert await found.streamed.next() == b""
        found.streamed.close()
        found.streamed.close()
        assert set(web.aborted) == {"a:1"}
        answered = await forwarding.answer(asked("/admin/v2/x"), None)
        assert answered is not None
        assert answered.status != 503

    run(work, {"a:1": _HEAD + piece(b"data: 1\n\n")}, most=1)


@pytest.mark.parametrize("lost", [True, False], ids=["lost", "silent"])
def test_events_of_a_broker_that_is_gone_end(lost: bool) -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/dashboard/events/broker"), None)
        assert found is not None
        assert found.streamed is not None
        assert await found.streamed.next() == b"data: 1\n\n"
        waiting = asyncio.ensure_future(found.streamed.next())
        await asyncio.sleep(0)
        if lost:
            web.opened["a:1"].connection_lost(None)
        with pytest.raises(Abandoned, match="has ended" if lost else "sent nothing for 0.05 s"):
            await waiting
        found.streamed.close()

    run(work, {"a:1": _HEAD + piece(b"data: 1\n\n")}, seconds=5 if lost else 0.05)


def test_a_page_gets_the_same_broker_each_time_or_the_one_that_it_names() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        paths = ("/", "/dashboard/start.js", "/openapi.json", "/admin/v2/magnetar/storage")
        for path in paths:
            found = await forwarding.answer(asked(path), None)
            assert found is not None
            assert found.headers == [("Magnetar-Broker", "a:1")]
        assert [place for place, _ in web.heard] == ["a:1"] * 4
        for path in (*paths, "/admin/v2/tenants"):
            found = await forwarding.answer(asked(path, **{"magnetar-broker": "B:1"}), None)
            assert found is not None
            assert found.status == 200
        assert [place for place, _ in web.heard[4:]] == ["b:1"] * 5
        assert all(b"agnetar-" not in data for _, data in web.heard)
        # Not even if the name resolves: only the brokers are named.
        found = await forwarding.answer(asked("/dashboard/access", **{"magnetar-broker": "o:1"}), None)
        assert found is not None
        assert (found.status, b"knows no broker 'o:1'" in found.body) == (404, True)
        assert len(web.heard) == 9

    run(work, {"a:1": answer(200), "b:1": answer(200), "o:1": answer(200)})


def test_a_page_is_led_to_the_broker_that_serves_its_topic() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/dashboard/events/topic/persistent/a/b/c"), None)
        assert found is not None
        assert found.body == b"there"
        assert [place for place, _ in web.heard] == ["a:1", "c:1"]

    elsewhere = {"Location": "http://c:1/dashboard/events/topic/persistent/a/b/c"}
    run(work, {"a:1": answer(421, b"{}", **elsewhere), "c:1": answer(200, b"there")})

    async def unknown(forwarding: Forwarding, web: Web) -> None:
        found = await forwarding.answer(asked("/dashboard/events/topic/persistent/a/b/c"), None)
        assert found is not None
        assert (found.status, found.body) == (421, b"{}")

    run(unknown, {"a:1": answer(421, b"{}")})


@pytest.mark.parametrize("forward_credentials", [False, True])
def test_files_of_pages_are_for_everybody_and_nothing_else_is(forward_credentials: bool) -> None:
    files = (
        "/",
        "/dashboard/start.js",
        "/dashboard/icon.svg",
        "/openapi",
        "/openapi.json",
        "/openapi/page.css",
    )
    others = (
        "/dashboard",
        "/dashboard/access",
        "/dashboard/events/broker",
        "/dashboard/a/b.js",
        "/admin/v2/x.js",
    )

    async def work(forwarding: Forwarding, web: Web) -> None:
        assert [path for path in files + others if forwarding.is_public(asked(path))] == list(files)
        assert not any(forwarding.is_public(asked(path, "POST")) for path in files)
        await forwarding.answer(asked("/", authorization="Bearer client"), None)
        assert b"client" not in web.heard[0][1]
        assert b"proxy" not in web.heard[0][1]

    run(work, {"a:1": answer(200)}, forward_credentials=forward_credentials)


def test_brokers_are_not_told_of_the_origin_that_the_proxy_has_checked() -> None:
    async def work(forwarding: Forwarding, web: Web) -> None:
        await forwarding.answer(asked("/admin/v2/x", "PUT", origin="https://proxy.example"), None)
        await forwarding.answer(asked("/x", "PUT", origin="https://proxy.example"), None)
        assert [b"origin" in data for _, data in web.heard] == [False, True]

    run(work, {"a:1": answer(200), "o:1": answer(200)})
