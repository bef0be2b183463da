"""Ledgers on a bookie that asks its clients for certificates."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bookkeeper_servers import BookKeeperServers
from certificates import Authority
from ledger_load import Load, Process, payload, until

from magnetar.io.interfaces import ConnectingNetwork
from magnetar.io.real.tls_network import Upgrade, UpgradingNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles
from magnetar.ledger.bookkeeper import start_tls
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies
from magnetar.ledger.interface import Quorums

UPGRADE = Upgrade(start_tls.QUESTION, start_tls.answer_bytes, start_tls.refused)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BookKeeperServers]:
    pair = authority.server(hosts=("127.0.0.1",))
    servers = BookKeeperServers(
        tmp_path_factory.mktemp("guarded"),
        bookies=1,
        tlsProvider="JDK",
        tlsProviderFactoryClass="org.apache.bookkeeper.tls.TLSContextFactory",
        tlsClientAuthentication="true",
        tlsKeyStoreType="PEM",
        tlsKeyStore=pair.key,
        tlsCertificatePath=pair.certificate,
        tlsTrustStoreType="PEM",
        tlsTrustStore=authority.trust,
    )
    try:
        servers.start()
        yield servers
    finally:
        servers.close()


def lived(servers: BookKeeperServers, folder: Path, network: Callable[[], ConnectingNetwork | None]) -> Load:
    """A load for as long as some entries take, or until it fails; what was told is read."""

    async def scenario() -> Load:
        process = await Process.start(servers, folder, network())
        load = Load(await process.store.create(Quorums(1, 1, 1), {}))
        try:
            await until(lambda: load.told >= 1000 or load.failed is not None)
            await load.stop()
            if load.failed is None:
                last, _ = await load.writer.close()
                found = await process.entries(load.writer.ledger_id)
                assert found == [payload(entry_id) for entry_id in range(last + 1)]
        finally:
            await process.close()
        return load

    return asyncio.run(asyncio.wait_for(scenario(), 60))


def secured(files: TlsFiles, verify_host: bool = True) -> Callable[[], ConnectingNetwork]:
    def network() -> ConnectingNetwork:
        context = ClientContext(ClientTls(files, verify_host=verify_host))
        return UpgradingNetwork(asyncio.get_running_loop(), context, UPGRADE)

    return network


def test_a_client_with_a_certificate_writes_and_reads(
    guarded: BookKeeperServers, authority: Authority, tmp_path: Path
) -> None:
    own = authority.client("broker")
    load = lived(guarded, tmp_path, secured(TlsFiles(own.certificate, own.key, authority.trust)))
    assert load.failed is None


def test_a_client_without_a_certificate_gets_nothing_stored(
    guarded: BookKeeperServers, authority: Authority, tmp_path: Path
) -> None:
    load = lived(guarded, tmp_path, secured(TlsFiles(trust=authority.trust)))
    assert isinstance(load.failed, NotEnoughBookies)
    assert load.told == -1


def test_a_bookie_that_somebody_else_vouches_for_is_told_nothing(
    guarded: BookKeeperServers, authority: Authority, tmp_path: Path
) -> None:
    own = authority.client("broker")
    other = Authority(tmp_path, "other")
    load = lived(guarded, tmp_path, secured(TlsFiles(own.certificate, own.key, other.trust)))
    assert isinstance(load.failed, NotEnoughBookies)
    assert load.told == -1
