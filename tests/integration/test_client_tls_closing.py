"""Connections with TLS end together with their client, also when the broker is far away or silent."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from certificates import Authority
from server import Server
from tcp_proxy import Direction, TcpProxy

from magnetar.client import aio

PROGRAMS = {
    "blocking": """
from magnetar.client import Client
with Client(sys.argv[1], tls_trust_certs_file_path=sys.argv[2]) as client:
    client.create_producer("t").send(b"x")
""",
    "asyncio": """
from magnetar.client import aio
async def main():
    async with aio.Client(sys.argv[1], tls_trust_certs_file_path=sys.argv[2]) as client:
        await (await client.create_producer("t")).send(b"x")
asyncio.run(main())
""",
    "official": """
from magnetar import pulsar
client = pulsar.Client(sys.argv[1], tls_trust_certs_file_path=sys.argv[2])
client.create_producer("t").send(b"x")
client.close()
""",
    "shutdown": """
from magnetar import pulsar
client = pulsar.Client(sys.argv[1], tls_trust_certs_file_path=sys.argv[2])
client.create_producer("t").send(b"x")
client.shutdown()
""",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def wire(authority: Authority, start_server: Callable[..., Server]) -> Iterator[TcpProxy]:
    pair = authority.server("localhost", ("localhost",))
    server = start_server(
        brokerServicePortTls=0,
        tlsCertificateFilePath=pair.certificate,
        tlsKeyFilePath=pair.key,
        advertisedAddress="localhost",
    )
    made = TcpProxy(int(server.urls["pulsar+ssl"].rpartition(":")[2]))
    yield made
    made.close()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.parametrize("kind", PROGRAMS)
def test_connections_end_with_the_client(
    authority: Authority, wire: TcpProxy, tmp_path: Path, kind: str, loop: str
) -> None:
    wire.slow(0.1)
    without = "sys.modules['uvloop'] = None\n" if loop == "asyncio" else ""
    program = f"import asyncio, gc, sys\n{without}{PROGRAMS[kind]}\ngc.collect()\n"
    url = f"pulsar+ssl://localhost:{wire.port}"
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program, url, str(authority.trust)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), "no connection is left, of which Python would warn"


def test_a_silent_broker_is_not_waited_for(authority: Authority, wire: TcpProxy) -> None:
    async def work() -> float:
        client = aio.Client(
            f"pulsar+ssl://localhost:{wire.port}", tls_trust_certs_file_path=str(authority.trust)
        )
        await client.get_topic_partitions("t")
        wire.stall(Direction.TO_CLIENT)
        began = time.monotonic()
        await client.close()
        return time.monotonic() - began

    wire.slow(0)
    assert 0.9 < asyncio.run(work()) < 10
