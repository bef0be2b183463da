"""Legacy names of namespaces (``tenant/cluster/namespace``) in several clusters."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pulsar
import pytest
from polling import until
from replicated_sites import Site, connect, nothing_more, received
from secured import SUPERUSER, SecuredServer, token
from server import Server

Pair = tuple[Site[Server], Site[Server]]


@pytest.fixture(scope="module")
def pair(start_server: Callable[..., Server]) -> Iterator[Pair]:
    east, west = (Site(name, start_server(clusterName=name)) for name in ("east", "west"))
    connect(east, west)
    yield east, west
    east.client.close()
    west.client.close()


def ask(site: Site[Server], method: str, path: str, body: object = None) -> tuple[int, str]:
    """Through the older paths, which have the cluster in them."""
    data = None if body is None else json.dumps(body)
    status, answer = site.server.ask(method, f"/admin/{path}", data)
    return status, answer.decode()


def test_global_namespaces_are_replicated(pair: Pair) -> None:
    east, west = pair
    for site in pair:
        created = ask(site, "PUT", "namespaces/geo/global/old", {"replication_clusters": ["east", "west"]})
        assert created == (204, "")
    topic = "geo/global/old/t"
    there = west.subscribe(topic)
    east.publish(topic, ["1", "2"])
    assert [message.data() for message in received(there, 2)] == [b"1", b"2"]
    assert nothing_more(there)
    there.close()
    assert ask(east, "PUT", "persistent/geo/global/old/parted/partitions", 2)[0] == 204
    partitions = "persistent/geo/global/old/parted/partitions"
    until(
        lambda: json.loads(ask(west, "GET", partitions)[1]).get("partitions") == 2, "they are made there, too"
    )


def test_global_namespaces_are_refused_where_they_do_not_list_the_cluster(pair: Pair) -> None:
    east, west = pair
    assert ask(east, "PUT", "namespaces/geo/global/away", {"replication_clusters": ["west"]})[0] == 204
    status, answer = ask(east, "GET", "persistent/geo/global/away/t/stats")
    assert status == 412
    assert "local_cluster=east ns=geo/global/away clusters=[west]" in answer
    assert ask(west, "PUT", "namespaces/geo/global/away", {"replication_clusters": ["west"]})[0] == 204
    east.ask("POST", "/clusters/east/peers", ["west"])
    there = east.subscribe("geo/global/away/t")
    west.publish("geo/global/away/t", ["1"])
    assert [message.data() for message in received(there, 1)] == [b"1"]
    there.close()
    east.ask("POST", "/clusters/east/peers", [])


def test_the_cluster_of_a_name_exists_and_is_one_that_the_tenant_may_use(pair: Pair) -> None:
    east, _ = pair
    east.ask("PUT", "/clusters/north", {"serviceUrl": "http://127.0.0.1:1"})
    for cluster, status, reason in (
        ("north", 403, "Cluster [north] is not in the list of allowed clusters list for tenant [geo]"),
        ("nowhere", 403, "Cluster [nowhere] is not in the list of allowed clusters list for tenant [geo]"),
        ("west", 204, ""),
        ("east", 204, ""),
    ):
        found, answer = ask(east, "PUT", f"namespaces/geo/{cluster}/old")
        assert (found, reason in answer) == (status, True), answer


def test_the_list_of_a_namespace_of_one_cluster_cannot_be_another(pair: Pair) -> None:
    east, _ = pair
    assert ask(east, "PUT", "namespaces/geo/east/one")[0] == 204
    path = "namespaces/geo/east/one/replication"
    status, answer = ask(east, "POST", path, ["east", "west"])
    assert status == 412, answer
    assert ask(east, "POST", path, ["east"])[0] == 200


class SecuredSite:
    """A broker that asks who its clients are, and a client of its superuser."""

    def __init__(self, name: str, folder: Path) -> None:
        self.server = SecuredServer(
            folder,
            clusterName=name,
            brokerClientAuthenticationPlugin="org.apache.pulsar.client.impl.auth.AuthenticationToken",
            brokerClientAuthenticationParameters=f"token:{token(SUPERUSER)}",
        )
        self.server.start()
        self.client = pulsar.Client(
            self.server.url, authentication=pulsar.AuthenticationToken(token(SUPERUSER))
        )

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, str]]:
        """Status and headers, by name in lower case."""
        url = urlsplit(self.server.http_url)
        with closing(HTTPConnection(str(url.hostname), url.port)) as connection:
            headers = {"Authorization": f"Bearer {token(SUPERUSER)}", "Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}

    def close(self) -> None:
        self.client.close()
        self.server.close()


def test_with_authorization_a_legacy_namespace_is_served_by_the_cluster_in_its_name(tmp_path: Path) -> None:
    with ExitStack() as stack:
        sites = {}
        for name in ("east", "west"):
            (tmp_path / name).mkdir()
            sites[name] = stack.enter_context(closing(SecuredSite(name, tmp_path / name)))
        east, west = sites["east"], sites["west"]
        for site, other, cluster in ((east, west, "west"), (west, east, "east")):
            record = {"serviceUrl": other.server.http_url, "brokerServiceUrl": other.server.url}
            assert site.ask("PUT", f"/admin/v2/clusters/{cluster}", record)[0] == 200
            tenant = {"allowedClusters": ["east", "west"]}
            assert site.ask("PUT", "/admin/v2/tenants/geo", tenant)[0] == 204
            assert site.ask("PUT", "/admin/namespaces/geo/west/old")[0] == 204
        topic = "persistent://geo/west/old/t"
        there = west.client.subscribe(topic, "s")
        producer = east.client.create_producer(topic)
        producer.send(b"1")
        assert there.receive(30_000).data() == b"1"
        path = "/admin/persistent/geo/west/old/t/stats"
        status, headers = east.ask("GET", path)
        assert (status, headers["location"]) == (307, f"{west.server.http_url}{path}?authoritative=false")
        assert west.ask("GET", path)[0] == 200
        # A record with the addresses of the broker itself would send clients back for ever.
        renamed = {"serviceUrl": east.server.http_url, "brokerServiceUrl": east.server.url}
        assert east.ask("POST", "/admin/v2/clusters/west", renamed)[0] == 200
        assert east.ask("GET", path)[0] == 412
