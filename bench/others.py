"""Peers with other protocols: Redis streams and NATS JetStream, both with a sync for each write.

Each has a generator for its own protocol, as raw as Magnetar's: prepared frames, counted replies.
"""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.servers import Server

Figures = dict[str, float]
_SIZE = 100
_OUTSTANDING = 1000
_GROUP = 1000
_WARM_UP_SECONDS = 2.0
_PACED_RATE = 1000
_CHUNK = 1 << 20


class Talk:
    """A blocking connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """:raises ConnectionError: the server has closed the connection"""
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            data += self.receive()
        return data

    def readable(self, seconds: float) -> bool:
        return bool(select.select([self._socket], [], [], seconds)[0])

    def close(self) -> None:
        self._socket.close()


class Counts:
    """Counts of publisher and consumer; each writes its own."""

    def __init__(self) -> None:
        self.sent = 0
        self.confirmed = 0
        self.received = 0
        self.ending = False


@dataclass
class Other(Server):
    """A server that publishes, delivers and acknowledges 100 B messages, one by one."""

    def prepare(self) -> None:
        """Creates stream and consumer again."""
        raise NotImplementedError

    def publisher(self, counts: Counts) -> Callable[[], None]:
        raise NotImplementedError

    def consumer(self, counts: Counts) -> Callable[[], None]:
        raise NotImplementedError

    def one(self) -> Callable[[], None]:
        """Returns a function that publishes one message and waits for its confirmation."""
        raise NotImplementedError

    def as_fast_as_it_goes(self, seconds: float) -> Figures:
        self.prepare()
        counts = Counts()
        threads = [threading.Thread(target=work) for work in (self.publisher(counts), self.consumer(counts))]
        for thread in threads:
            thread.start()
        time.sleep(_WARM_UP_SECONDS)
        cpu, received, began = self.cpu_seconds(), counts.received, time.monotonic()
        time.sleep(seconds)
        spent = self.cpu_seconds() - cpu
        messages, took = counts.received - received, time.monotonic() - began
        counts.ending = True
        for thread in threads:
            thread.join(60)
        if counts.received != counts.sent or counts.confirmed != counts.sent:
            raise RuntimeError(f"{counts.sent} were sent, {counts.received} came")
        return {
            "deliver_rate": messages / took,
            "server_cpu_us_per_message": spent / messages * 1e6,
            "server_rss_mb": self.resident_mb(),
        }

    def paced(self, seconds: float) -> Figures:
        """Measures 1,000 messages per second; latency from the time at which a message was due."""
        self.prepare()
        publish = self.one()
        for _ in range(_PACED_RATE):
            publish()
        cpu, began = self.cpu_seconds(), time.monotonic()
        latencies = []
        for number in range(int(_PACED_RATE * seconds)):
            due = began + number / _PACED_RATE
            while (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            publish()
            latencies.append((time.monotonic() - due) * 1e3)
        spent = (self.cpu_seconds() - cpu) / (time.monotonic() - began)
        latencies.sort()
        last = len(latencies) - 1
        return {
            "publish_p50": latencies[last // 2],
            "publish_p99": latencies[int(last * 0.99)],
            "publish_only_cores": spent,
        }


def _bulk(*parts: bytes) -> bytes:
    """Returns a command of Redis' protocol (RESP)."""
    lines = [b"*%d\r\n" % len(parts)]
    lines += [b"$%d\r\n%s\r\n" % (len(part), part) for part in parts]
    return b"".join(lines)


_REDIS_ID = re.compile(rb"\$\d+\r\n(\d+-\d+)\r\n")


@dataclass
class Redis(Other):
    """Debian's Redis with an append-only file, synced before each answer."""

    root: Path = Path()

    def command(self) -> list[str]:
        flags = ["--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder)]
        flags += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        return [str(self.root / "usr" / "bin" / "redis-server"), *flags]

    def environment(self) -> dict[str, str]:
        libraries = next((self.root / "usr" / "lib").glob("*-linux-gnu"))
        return dict(os.environ) | {"LD_LIBRARY_PATH": str(libraries)}

    def _serves(self) -> bool:
        try:
            talk = Talk(self.port)
        except OSError:
            return False
        talk.send(_bulk(b"PING"))
        answer = talk.until(b"\r\n")
        talk.close()
        return answer == b"+PONG\r\n"

    def prepare(self) -> None:
        talk = Talk(self.port)
        talk.send(_bulk(b"DEL", b"s"))
        talk.until(b"\r\n")
        talk.send(_bulk(b"XGROUP", b"CREATE", b"s", b"g", b"$", b"MKSTREAM"))
        talk.until(b"\r\n")
        talk.close()

    def publisher(self, counts: Counts) -> Callable[[], None]:
        add = _bulk(b"XADD", b"s", b"*", b"d", b"x" * _SIZE)

        def work() -> None:
            talk = Talk(self.port)
            while not counts.ending or counts.confirmed < counts.sent:
                room = 0 if counts.ending else _OUTSTANDING - (counts.sent - counts.confirmed)
                if room >= _OUTSTANDING // 4:
                    counts.sent += room
                    talk.send(add * room)
                counts.confirmed += talk.receive().count(b"$")
            talk.close()

        return work

    def consumer(self, counts: Counts) -> Callable[[], None]:
        words = f"XREADGROUP GROUP g c COUNT {_GROUP} BLOCK 200 STREAMS s >"
        read = _bulk(*words.encode().split())

        def work() -> None:
            talk = Talk(self.port)
            while not counts.ending or counts.received < counts.sent:
                talk.send(read)
                data = talk.until(b"\r\n")
                # A complete answer has as many contents as ids, and ends with the last content.
                while data.startswith(b"*1\r\n") and data.count(b"x\r\n") < _announced(data):
                    data += talk.receive()
                ids = _REDIS_ID.findall(data)
                if ids:
                    talk.send(_bulk(b"XACK", b"s", b"g", *ids))
                    talk.until(b"\r\n")
                    counts.received += len(ids)
            talk.close()

        return work

    def one(self) -> Callable[[], None]:
        talk, add = Talk(self.port), _bulk(b"XADD", b"s", b"*", b"d", b"x" * _SIZE)

        def publish() -> None:
            talk.send(add)
            talk.until(b"\r\n")

        return publish


_REDIS_COUNT = re.compile(rb"\*1\r\n\*2\r\n\$1\r\ns\r\n\*(\d+)\r\n")


def _announced(answer: bytes) -> int:
    """Returns the number of messages that an answer to XREADGROUP announces."""
    found = _REDIS_COUNT.match(answer)
    return int(found[1]) if found is not None else 1 << 30


def fetch_redis(cache: Path) -> Path:
    """Unpacks Debian's packages below ``cache``; installs nothing."""
    root = cache / "redis"
    if not (root / "usr" / "bin" / "redis-server").exists():
        packages = cache / "redis-packages"
        packages.mkdir(parents=True, exist_ok=True)
        names = ["redis-server", "redis-tools", "libjemalloc2", "liblzf1", "liblua5.1-0", "libhiredis0.14"]
        for name in (*names, "lua-cjson", "lua-bitop", "libatomic1"):
            subprocess.run(["apt-get", "download", name], cwd=packages, check=False, capture_output=True)
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    return root


_NATS_MESSAGE = re.compile(rb"MSG (\S+) \S+ (?:(\S+) )?(\d+)\r\n")


@dataclass
class Nats(Other):
    """NATS JetStream, file storage, every write synced."""

    binary: Path = Path()

    def command(self) -> list[str]:
        config = self.folder / "nats.conf"
        store = json.dumps(str(self.folder / "store"))
        stream = f"jetstream {{ store_dir: {store}, sync_interval: always }}"
        config.write_text(f'host: "127.0.0.1"\nport: {self.port}\n{stream}\n')
        return [str(self.binary), "-c", str(config)]

    def _connect(self) -> Talk:
        talk = Talk(self.port)
        talk.until(b"\r\n")
        talk.send(b'CONNECT {"verbose":false,"pedantic":false}\r\nPING\r\n')
        talk.until(b"PONG\r\n")
        return talk

    def _serves(self) -> bool:
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    def _ask(self, subject: str, body: dict[str, object]) -> bytes:
        talk = self._connect()
        data = json.dumps(body).encode()
        talk.send(b"SUB answer 1\r\nPUB %s answer %d\r\n%s\r\n" % (subject.encode(), len(data), data))
        answer = talk.until(b"\r\n")
        while answer.count(b"\r\n") < 2:
            answer += talk.until(b"\r\n")
        talk.close()
        return answer

    def prepare(self) -> None:
        self._ask("$JS.API.STREAM.DELETE.S", {})
        stream = {"name": "S", "subjects": ["s"], "storage": "file", "retention": "limits"}
        made = self._ask("$JS.API.STREAM.CREATE.S", dict(stream))
        config = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 100_000}
        ours = self._ask("$JS.API.CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})
        for answer in (made, ours):
            if b'"error"' in answer:
                raise RuntimeError(answer.decode())

    def publisher(self, counts: Counts) -> Callable[[], None]:
        add = b"PUB s told %d\r\n%s\r\n" % (_SIZE, b"x" * _SIZE)

        def work() -> None:
            talk = self._connect()
            talk.send(b"SUB told 1\r\n")
            while not counts.ending or counts.confirmed < counts.sent:
                room = 0 if counts.ending else _OUTSTANDING - (counts.sent - counts.confirmed)
                if room >= _OUTSTANDING // 4:
                    counts.sent += room
                    talk.send(add * room)
                data = talk.receive()
                # Read until complete answers, so that counted parts are not split.
                while not data.endswith(b"\r\n"):
                    data += talk.receive()
                counts.confirmed += data.count(b'"seq":')
            talk.close()

        return work

    def consumer(self, counts: Counts) -> Callable[[], None]:
        body = b'{"batch":%d,"expires":500000000}' % _GROUP
        ask = b"PUB $JS.API.CONSUMER.MSG.NEXT.S.C box %d\r\n%s\r\n" % (len(body), body)

        def work() -> None:
            talk = self._connect()
            talk.send(b"SUB box 1\r\n" + ask)
            left, rest = _GROUP, b""
            while not counts.ending or counts.received < counts.sent:
                if not talk.readable(1.0):
                    talk.send(ask)
                    left = _GROUP
                    continue
                rest += talk.receive()
                answers, at = [], 0
                while (found := _NATS_MESSAGE.search(rest, at)) is not None:
                    after = found.end() + int(found[3]) + 2
                    if after > len(rest):
                        break
                    if found[2] is not None:
                        answers.append(b"PUB %s 0\r\n\r\n" % found[2])
                    at = after
                if b"408" in rest or b"409" in rest:
                    left = 0
                rest = rest[at:] if at else rest
                left -= len(answers)
                if left <= 0:
                    answers.append(ask)
                    left = _GROUP
                counts.received += sum(not each.startswith(b"PUB $JS.API") for each in answers)
                talk.send(b"".join(answers))
            talk.close()

        return work

    def one(self) -> Callable[[], None]:
        talk = self._connect()
        talk.send(b"SUB told 1\r\n")
        add = b"PUB s told %d\r\n%s\r\n" % (_SIZE, b"x" * _SIZE)

        def publish() -> None:
            talk.send(add)
            data = talk.receive()
            while data.count(b"\r\n") < 2:
                data += talk.receive()

        return publish


def fetch_nats(cache: Path) -> Path:
    """Builds the server from its Go module."""
    binary = cache / "go" / "nats-server"
    if not binary.exists():
        if shutil.which("go") is None:
            raise RuntimeError("there is no Go to build nats-server with")
        environment = dict(os.environ) | {"GOBIN": str(binary.parent), "GOFLAGS": "-mod=mod"}
        subprocess.run(
            ["go", "install", "github.com/nats-io/nats-server/v2@v2.10.22"], check=True, env=environment
        )
    return binary


def others(names: list[str], cache: Path, folder: Path) -> list[Server]:
    """Returns the servers of ``PEERS``.

    :raises ValueError: a name is unknown
    """
    found: list[Server] = []
    for name in names:
        if name == "redis":
            redis = Redis("redis", "Redis streams, appendfsync always", "redis", folder / "redis")
            redis.root = fetch_redis(cache)
            found.append(redis)
        elif name == "nats":
            nats = Nats("nats", "NATS JetStream, sync_interval always", "nats", folder / "nats")
            nats.binary = fetch_nats(cache)
            found.append(nats)
        else:
            raise ValueError(f"PEERS: {name} is neither redis nor nats")
    return found
