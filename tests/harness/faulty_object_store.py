"""An S3-compatible store for tests, in threads of this process, behind a proxy that fails on demand."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

BUCKET = "tier"
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive"}


class Fault(Enum):
    """What happens to a request."""

    RESET = "the connection ends before the request reaches the store"
    LOST = "the store carries out the request, and the connection ends before the answer"
    CUT = "the answer ends in the middle"
    SLOW = "the answer comes in small pieces"
    ERROR = "the answer is an internal error"
    BUSY = "the answer asks for fewer requests"
    FORBIDDEN = "the credentials are refused"
    HANG = "no answer comes until the store is released"


_ANSWERS = {
    Fault.ERROR: (500, "InternalError", "We encountered an internal error. Please try again."),
    Fault.BUSY: (503, "SlowDown", "Please reduce your request rate."),
    Fault.FORBIDDEN: (403, "InvalidAccessKeyId", "The access key id does not exist in our records."),
}


@dataclass
class Planned:
    """A fault of the next requests with a method and a text in the path or query."""

    fault: Fault
    method: str
    text: str
    times: int


@dataclass
class ObjectStore:
    """The store, as tests see it."""

    endpoint: str
    target: str
    planned: list[Planned] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)
    """Methods and paths with queries of all requests."""
    access_keys: list[str] = field(default_factory=list)
    """The access key of each of them; empty: none."""
    released: threading.Event = field(default_factory=threading.Event)
    """Set: requests that hang are answered, and none hangs any more."""
    hanging: int = 0
    """The number of requests that have hung so far."""
    ends: Callable[[bool], bool] = lambda _done: False
    """Called for each request before the store gets it (False) and after the store has carried it out (True);
    True: the connection ends then."""

    def settings(self, **more: str) -> Mapping[str, str]:
        """Returns the settings of a driver, by Pulsar's names."""
        return {
            "s3ManagedLedgerOffloadRegion": "us-east-1",
            "s3ManagedLedgerOffloadBucket": BUCKET,
            "s3ManagedLedgerOffloadServiceEndpoint": self.endpoint,
            "s3ManagedLedgerOffloadCredentialId": "test-key",
            "s3ManagedLedgerOffloadCredentialSecret": "test-secret",
            **more,
        }

    def plan(self, fault: Fault, method: str, text: str = "", times: int = 100) -> None:
        """Lets the next ``times`` matching requests fail."""
        self.planned.append(Planned(fault, method, text, times))

    def next_fault(self, method: str, path: str) -> Fault | None:
        self.seen.append((method, path))
        for each in self.planned:
            if each.times and each.method == method and each.text in path:
                each.times -= 1
                return each.fault
        return None

    def request(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Sends a request to the store itself."""
        address = urlsplit(self.target)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, name: str) -> bytes:
        """Returns an object."""
        status, _headers, body = self.request("GET", f"/{BUCKET}/{name}", headers=_signed())
        assert status == 200, (name, status)
        return body

    def metadata(self, name: str) -> dict[str, str]:
        """Returns the user metadata of an object."""
        _status, headers, _body = self.request("HEAD", f"/{BUCKET}/{name}", headers=_signed())
        prefix = "x-amz-meta-"
        return {key[len(prefix) :]: value for key, value in headers.items() if key.startswith(prefix)}

    def put(self, name: str, body: bytes, version: str = "1") -> None:
        """Stores an object, as an offloader would."""
        headers = {**_signed(), "x-amz-meta-s3managedledgeroffloaderformatversion": version}
        assert self.request("PUT", f"/{BUCKET}/{name}", body, headers)[0] == 200

    def names(self) -> str:
        """Returns the store's list of the objects and of the unfinished uploads."""
        objects = self.request("GET", f"/{BUCKET}", headers=_signed())[2]
        uploads = self.request("GET", f"/{BUCKET}?uploads", headers=_signed())[2]
        return (objects + uploads).decode()


def _signed() -> dict[str, str]:
    """Returns a signature that the store does not verify, and yet wants to see."""
    credential = "test-key/20260101/us-east-1/s3/aws4_request"
    return {"Authorization": f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host, Signature=0"}


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    """Runs a store with one empty bucket."""
    # moto takes seconds to import, which tests without a store would wait for.
    from bucket import s3_server

    with s3_server() as url, _proxy(url) as store:
        assert store.request("PUT", f"/{BUCKET}", headers=_signed())[0] == 200
        yield store


@contextmanager
def _proxy(target: str) -> Iterator[ObjectStore]:
    store = ObjectStore("", target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_arguments: object) -> None:
            """Says nothing."""

        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            _, _, credential = self.headers.get("Authorization", "").partition("Credential=")
            store.access_keys.append(credential.partition("/")[0])
            fault = store.next_fault(self.command, self.path)
            if store.ends(False):
                self._end()
                return
            if fault is Fault.HANG and not store.released.is_set():
                store.hanging += 1
                store.released.wait()
                if self._is_gone():
                    return
            if fault is Fault.RESET:
                self._end()
            elif fault in _ANSWERS:
                status, code, text = _ANSWERS[fault]
                xml = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{text}</Message></Error>"
                self._answer(status, {}, xml.encode(), None)
            else:
                status, headers, answer = store.request(self.command, self.path, body, dict(self.headers))
                if store.ends(True) or fault is Fault.LOST:
                    self._end()
                else:
                    self._answer(status, headers, answer, fault)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _handle

        def _answer(self, status: int, headers: dict[str, str], body: bytes, fault: Fault | None) -> None:
            self.send_response_only(status)
            length = headers.get("Content-Length", str(len(body)))
            for name, value in headers.items():
                if name.lower() not in _HOP_BY_HOP and name.lower() != "content-length":
                    self.send_header(name, value)
            self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            if fault is Fault.CUT:
                self.wfile.write(body[: len(body) // 2])
                self._end()
            elif fault is Fault.SLOW:
                for start in range(0, len(body), 1 << 16):
                    self.wfile.write(body[start : start + (1 << 16)])
                    self.wfile.flush()
            else:
                self.wfile.write(body)

        def _is_gone(self) -> bool:
            """Whether the client has ended the connection meanwhile."""
            self.connection.setblocking(False)
            try:
                gone = self.connection.recv(1, socket.MSG_PEEK) == b""
            except BlockingIOError:
                gone = False
            except ConnectionError:
                gone = True
            self.connection.setblocking(True)
            self.close_connection = gone
            return gone

        def _end(self) -> None:
            self.wfile.flush()
            self.close_connection = True
            with suppress(OSError):
                # The client may not exist any more.
                self.connection.shutdown(socket.SHUT_RDWR)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    store.endpoint = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield store
    finally:
        store.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
