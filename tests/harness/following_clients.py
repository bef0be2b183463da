"""Clients with a producer and a consumer of one topic, which go wherever the topic goes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Protocol

import pulsar
from java_servers import java

import magnetar.client.blocking as magnetar_client

_SOURCE = Path(__file__).parents[1] / "cluster" / "servers" / "FollowingClient.java"
_MILLISECONDS = 30_000


class Following(Protocol):
    def exchange(self, text: str) -> None:
        """Publishes it; returns when it has come back."""
        ...

    def close(self) -> None: ...


class FollowingPython:
    def __init__(self, url: str, topic: str) -> None:
        self._client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        self._producer = self._client.create_producer(topic)
        self._consumer = self._client.subscribe(topic, "python")

    def exchange(self, text: str) -> None:
        self._producer.send(text.encode())
        received = b""
        while received != text.encode():
            message = self._consumer.receive(timeout_millis=_MILLISECONDS)
            self._consumer.acknowledge(message)
            received = message.data()

    def close(self) -> None:
        self._client.close()


class FollowingMagnetar:
    def __init__(self, url: str, topic: str) -> None:
        self._client = magnetar_client.Client(url)
        self._producer = self._client.create_producer(topic)
        self._consumer = self._client.subscribe(topic, "magnetar")

    def exchange(self, text: str) -> None:
        self._producer.send(text.encode())
        received = b""
        while received != text.encode():
            message = self._consumer.receive(timeout_millis=_MILLISECONDS)
            self._consumer.acknowledge(message)
            received = message.data()

    def close(self) -> None:
        self._client.close()


class FollowingJava:
    def __init__(self, url: str, topic: str, folder: Path) -> None:
        self._errors = folder / "java-client"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*java(folder), str(_SOURCE), url, topic],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._expect("ready")

    def exchange(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()
        self._expect(text)

    def _expect(self, text: str) -> None:
        assert self._process.stdout is not None
        while (line := self._process.stdout.readline()) != f"{text}\n":
            assert line, self._errors.read_text()[-3000:]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        finally:
            self._process.kill()
