"""Replication to a cluster that asks who its clients are, by TLS files and a token in its record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pulsar
import pytest
from polling import until
from replicated_sites import received
from secured import SUPERUSER, SecuredServer, token

NAMESPACE = "geo/secured"
TOPIC = f"{NAMESPACE}/t"
ROLE = "broker-of-east"
SECRET = token(ROLE)
STRANGER = token("stranger")
Record = dict[str, Any]


class SecuredSite:
    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name = name
        self.server = SecuredServer(
            folder,
            clusterName=name,
            magnetarReplicationRoles=ROLE,
            magnetarAuditEnabled="true",
        )
        self.server.start()
        proof = pulsar.AuthenticationToken(token(SUPERUSER))
        self.client = pulsar.Client(self.server.url, authentication=proof)

    def ask(self, method: str, path: str, body: object = None) -> bytes:
        url = urlsplit(self.server.http_url)
        with closing(HTTPConnection(str(url.hostname), url.port)) as connection:
            headers = {"Authorization": f"Bearer {token(SUPERUSER)}", "Content-Type": "application/json"}
            data = None if body is None else json.dumps(body)
            connection.request(method, f"/admin/v2{path}", data, headers)
            answer = connection.getresponse()
            told = answer.read()
            assert answer.status in (200, 204), told
            return told

    def publish(self, *contents: str) -> None:
        producer = self.client.create_producer(f"persistent://{TOPIC}")
        for content in contents:
            producer.send(content.encode())
        producer.close()

    def close(self) -> None:
        self.client.close()
        self.server.close()


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecuredSite, SecuredSite]]:
    folder = tmp_path_factory.mktemp("secured")
    with ExitStack() as stack:
        east, west = (
            stack.enter_context(closing(SecuredSite(name, folder / name))) for name in ("east", "west")
        )
        for site, other in ((east, west), (west, east)):
            site.ask("PUT", f"/clusters/{other.name}", {"serviceUrl": other.server.http_url})
            site.ask("PUT", "/tenants/geo", {"allowedClusters": ["east", "west"]})
            clusters = ["east", "west"] if site is east else ["west"]
            site.ask("PUT", f"/namespaces/{NAMESPACE}", {"replication_clusters": clusters})
        west.ask("POST", f"/namespaces/{NAMESPACE}/permissions/{ROLE}", ["produce", "consume"])
        yield east, west


def record_of(west: SecuredSite) -> Record:
    """By TLS, with the authority of the west alone, and a token of its own."""
    return {
        "serviceUrl": west.server.http_url,
        "serviceUrlTls": west.server.https_url,
        "brokerServiceUrl": west.server.url,
        "brokerServiceUrlTls": west.server.tls_url,
        "brokerClientTlsEnabled": True,
        "brokerClientTrustCertsFilePath": west.server.authority.trust,
        "authenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "authenticationParameters": f"token:{SECRET}",
    }


def replication_of(east: SecuredSite) -> Any:
    return json.loads(east.ask("GET", f"/persistent/{TOPIC}/stats"))["replication"]["west"]


def hindrance(east: SecuredSite) -> str:
    return str(replication_of(east).get("magnetarHindrance", ""))


def explained(east: SecuredSite) -> str:
    command = [sys.executable, "-m", "magnetar", "explain", TOPIC, "--admin-url", east.server.http_url]
    proof = ["--auth-plugin", "token", "--auth-params", f"token:{token(SUPERUSER)}"]
    told = subprocess.run([*command, *proof], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return " ".join(told.stdout.split())


def test_a_record_has_tls_files_and_credentials_of_its_own(sites: tuple[SecuredSite, SecuredSite]) -> None:
    east, west = sites
    right = record_of(west)
    east.ask("POST", "/clusters/west", right)
    there = west.client.subscribe(f"persistent://{TOPIC}", "s")
    east.publish("1")
    assert received(there, 1)[0].data() == b"1"
    stats = json.loads(west.ask("GET", f"/persistent/{TOPIC}/stats"))
    assert stats["replication"]["east"]["msgInCount"] == 1
    foreign = {"brokerClientTrustCertsFilePath": east.server.authority.trust}
    missing = {"brokerClientTrustCertsFilePath": str(Path(right["brokerClientTrustCertsFilePath"]) / "none")}
    for number, (wrong, words) in enumerate(
        (
            (foreign, "certificate signature failure"),
            (missing, "authority.pem/none cannot be read"),
            ({"authenticationParameters": f"token:{STRANGER}"}, "stranger"),
            ({"authenticationParameters": f"token:{SECRET}x"}, "The token's signature is wrong"),
            ({"authenticationPlugin": "none.Such"}, "none.Such"),
        )
    ):
        east.ask("POST", "/clusters/west", right | wrong)
        east.publish(f"late {number}")
        until(lambda words=words: words in hindrance(east), words)
        assert f"Nothing is sent to cluster west: {hindrance(east)}" in explained(east)
        east.ask("POST", "/clusters/west", right)
        # A change closes the connection, and a message without a receipt is sent once more.
        arrived = received(there, 1)[0].data().decode()
        while arrived == f"late {number - 1}":
            arrived = received(there, 1)[0].data().decode()
        assert arrived == f"late {number}"
        until(lambda: not replication_of(east)["replicationBacklog"], "no backlog")
    # The changes of the record are in the log, without what proves who the broker is.
    assert "/admin/v2/clusters/west" in east.server.log
    for site in sites:
        for secret in (SECRET, STRANGER):
            assert secret not in site.server.log
    assert SECRET not in explained(east)
    assert SECRET.encode() not in east.ask("GET", f"/persistent/{TOPIC}/stats")
    there.close()
