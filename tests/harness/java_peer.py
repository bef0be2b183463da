"""The official Java client as the other end of a test (tests/integration/clients/java, ``interop.Peer``)."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from urllib.parse import parse_qsl, urlencode

WAIT_MS = 30_000
SECONDS = 120.0


class JavaError(Exception):
    """The Java client raised an error; ``kind`` is the name of its class."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(f"{kind}: {reason}")
        self.kind = kind


@dataclass(frozen=True)
class JavaMessage:
    """A message that the Java client received."""

    value: str
    """Text of the value; bytes are in Base64, see :attr:`data`."""
    topic: str
    key: str | None
    ordering_key: str | None
    properties: Mapping[str, str]
    redeliveries: int
    event_time: int
    position: str
    """``ledger:entry``."""
    batch_index: int
    """-1: not in a batch."""

    @property
    def data(self) -> bytes:
        return b64decode(self.value)


class JavaPeer:
    """A Java client in a process of its own."""

    def __init__(self, command: Sequence[str], url: str) -> None:
        self._process = subprocess.Popen(
            [*command, "--url", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._ids = count()

    def ask(self, do: str, /, **values: object) -> dict[str, str]:
        """Returns the answer to one request.

        :raises JavaError: the client raised an error
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(urlencode({"do": do, **values}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert line, f"the Java client ended with {process.poll()}"
        answer = dict(parse_qsl(line.rstrip("\n"), keep_blank_values=True))
        if "error" in answer:
            raise JavaError(answer["error"], answer.get("reason", ""))
        return answer

    def producer(self, topic: str, **options: object) -> JavaProducer:
        """Options are ``batching`` (none, default, key), ``batch`` (the most messages), ``compression``,
        ``chunk`` (bytes), ``schema``, ``public`` and ``private`` (paths of keys)."""
        name = f"p{next(self._ids)}"
        self.ask("produce", id=name, topic=topic, **options)
        return JavaProducer(self, name)

    def consumer(self, topic: str, **options: object) -> JavaConsumer:
        """Options are ``subscription``, ``type``, ``schema``, ``retry``, ``redeliver`` (the most), ``public``
        and ``private``."""
        name = f"c{next(self._ids)}"
        self.ask("consume", id=name, topic=topic, **options)
        return JavaConsumer(self, name)

    def table_view(self, topic: str, **options: object) -> JavaTableView:
        """The option is ``schema``."""
        name = f"v{next(self._ids)}"
        self.ask("view", id=name, topic=topic, **options)
        return JavaTableView(self, name)

    def close(self) -> None:
        """Ends the process."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        try:
            process.wait(SECONDS)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


class JavaProducer:
    def __init__(self, peer: JavaPeer, name: str) -> None:
        self._peer = peer
        self._name = name

    def send(
        self, value: bytes | str, properties: Mapping[str, str] | None = None, **options: object
    ) -> None:
        """Sends without waiting; options are ``key``, ``ordering`` and ``event``."""
        text = b64encode(value).decode() if isinstance(value, bytes) else value
        more = {f".{name}": each for name, each in (properties or {}).items()}
        self._peer.ask("send", id=self._name, value=text, **options, **more)

    def flush(self) -> int:
        """Waits for all receipts, and returns the number of entries that the messages are in."""
        return int(self._peer.ask("flush", id=self._name)["entries"])

    def close(self) -> None:
        self._peer.ask("close", id=self._name)


class JavaConsumer:
    def __init__(self, peer: JavaPeer, name: str) -> None:
        self._peer = peer
        self._name = name

    def receive(self, wait_ms: int = WAIT_MS) -> JavaMessage:
        """:raises JavaError: no message arrived in time"""
        answer = self._peer.ask("receive", id=self._name, ms=wait_ms)
        return JavaMessage(
            answer["value"],
            answer["topic"],
            answer.get("key"),
            answer.get("ordering"),
            {name[1:]: value for name, value in answer.items() if name.startswith(".")},
            int(answer["redeliveries"]),
            int(answer["event"]),
            answer["position"],
            int(answer["index"]),
        )

    def take(self, wait_ms: int) -> JavaMessage | None:
        """As :meth:`receive`; None: no message arrived in time."""
        try:
            return self.receive(wait_ms)
        except JavaError as error:
            if error.kind == "Timeout":
                return None
            raise

    def acknowledge(self) -> None:
        """Acknowledges the message that was received last."""
        self._peer.ask("acknowledge", id=self._name)

    def negative_acknowledge(self) -> None:
        self._peer.ask("negative-acknowledge", id=self._name)

    def reconsume_later(self, delay_ms: int) -> None:
        self._peer.ask("reconsume", id=self._name, ms=delay_ms)

    def close(self) -> None:
        self._peer.ask("close", id=self._name)


class JavaTableView:
    def __init__(self, peer: JavaPeer, name: str) -> None:
        self._peer = peer
        self._name = name

    def contents(self) -> dict[str, bytes]:
        return {key: b64decode(text) for key, text in self.values().items()}

    def values(self) -> dict[str, str]:
        """Texts of the values; bytes are in Base64, see :meth:`contents`."""
        answer = self._peer.ask("contents", id=self._name)
        return {name[1:]: value for name, value in answer.items() if name.startswith(".")}

    def close(self) -> None:
        self._peer.ask("close", id=self._name)
