"""What an attack is given: the broker's addresses, the proofs of its roles, and ways to ask."""

from __future__ import annotations

import json
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from typing import Any

import websocket
from raw_client import Client

from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CompressionType, MessageMetadata

SECRET = b"SECRET-OF-B"
"""In every message of tenant ``b``."""
SECRETS = f"persistent://b/ns/{SECRET.decode().lower()}"
OWN, FOREIGN = "persistent://a/ns/t", "persistent://b/ns/t"
"""Topics of both tenants."""
SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Target:
    port: int
    """Of the binary protocol."""
    http_port: int
    tokens: dict[str, str]
    """By role: ``admin``, and of each tenant its ``x-admin`` and its ``x-user``."""

    @classmethod
    def read(cls, text: str) -> Target:
        return cls(**json.loads(text))

    def written(self) -> str:
        return json.dumps(asdict(self))

    def bearer(self, role: str | None) -> dict[str, str]:
        return {} if role is None else {"Authorization": f"Bearer {self.tokens[role]}"}

    def ask(
        self, method: str, path: str, role: str | None = None, body: Any = None, **headers: str
    ) -> tuple[int, bytes]:
        """Status and body of an answer; ``body`` goes as JSON, unless it is bytes.

        :raises AssertionError: the answer has a secret of tenant ``b`` in it, and it is not ``b`` who asks
        """
        connection = HTTPConnection("127.0.0.1", self.http_port, timeout=60)
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        try:
            connection.request(
                method, path, data, {"Content-Type": "application/json", **self.bearer(role), **headers}
            )
            response = connection.getresponse()
            answer = response.read()
        finally:
            connection.close()
        if role is None or not role.startswith(("b-", "admin")):
            assert SECRET not in answer, f"{role} reads secrets by {method} {path}"
        return response.status, answer

    def web_socket(self, path: str, role: str) -> websocket.WebSocket:
        url = f"ws://127.0.0.1:{self.http_port}/ws/v2/{path}"
        return websocket.create_connection(url, timeout=SECONDS, header=self.bearer(role))

    def web_socket_status(self, path: str, role: str) -> int:
        """101: it is opened."""
        try:
            self.web_socket(path, role).close()
        except websocket.WebSocketBadStatusException as error:
            return int(error.status_code)
        return 101

    @contextmanager
    def client(self, role: str) -> Iterator[Client]:
        """Speaks the binary protocol."""
        made = Client(self.port, auth_method_name="token", auth_data=self.tokens[role].encode())
        try:
            yield made
        finally:
            made.close()

    def send(self, data: bytes, seconds: float = 2.0) -> tuple[bytes, bool]:
        """What the HTTP port answers to bytes, and whether it closed the connection."""
        with socket.create_connection(("127.0.0.1", self.http_port), timeout=seconds) as one:
            one.sendall(data)
            answer = b""
            try:
                while piece := one.recv(65536):
                    answer += piece
            except TimeoutError:
                return answer, False
        return answer, True

    def store_bombs(self, topic: str, *sizes: int) -> None:
        """Publishes messages of zeros as ``a-user``: compressed they have a thousandth of their size."""
        with self.client("a-user") as client:
            producer, _success = client.produce(topic)
            for index, size in enumerate(sizes):
                metadata = MessageMetadata(producer_name="raw", sequence_id=index, publish_time=1)
                metadata.compression = CompressionType.ZLIB
                metadata.uncompressed_size = size
                client.publish(producer, index, build_entry(metadata, zlib.compress(bytes(size), 9)))
                client.take(BaseCommand.SEND_RECEIPT, producer_id=producer)


def path_of(topic: str) -> str:
    return topic.replace("://", "/")
