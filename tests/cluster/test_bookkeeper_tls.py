"""Ledgers on a bookie that asks its clients for certificates, and for names and passwords."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pulsar
import pytest
from bookkeeper_servers import BookKeeperServers
from certificates import Authority
from cluster_broker import BrokerProcess
from ledger_load import Load, Process, payload
from polling import until_true

from magnetar.io.interfaces import ConnectingNetwork
from magnetar.io.real.tls_network import Upgrade, UpgradingNetwork
from magnetar.io.tls import ClientContext, ClientTls, TlsFiles
from magnetar.ledger.bookkeeper import authentication
from magnetar.ledger.bookkeeper.authentication import AuthProvider, digest_auth_provider
from magnetar.ledger.bookkeeper.placement import NotEnoughBookies
from magnetar.ledger.bookkeeper.wire import VERSION_2, VERSION_3, Wire
from magnetar.ledger.interface import Quorums
from magnetar.protocol.digest_md5 import NameAndPassword

UPGRADE = Upgrade(authentication.QUESTION, authentication.answer_bytes, authentication.refused)
BROKER = NameAndPassword("broker", 'pässword with "quotes"')
LOGINS = """
Bookie {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  user_broker="pässword with \\"quotes\\"";
};
BookKeeper {
  org.apache.zookeeper.server.auth.DigestLoginModule required
  username="broker"
  password="pässword with \\"quotes\\"";
};
"""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[BookKeeperServers]:
    pair = authority.server(hosts=("127.0.0.1",))
    folder = tmp_path_factory.mktemp("guarded")
    logins = folder / "jaas.conf"
    logins.write_text(LOGINS)
    servers = BookKeeperServers(
        folder,
        bookies=1,
        logins=logins,
        bookieAuthProviderFactoryClass="org.apache.bookkeeper.sasl.SASLBookieAuthProviderFactory",
        saslJaasClientAllowedIds="broker",
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


def lived(
    servers: BookKeeperServers,
    folder: Path,
    network: Callable[[], ConnectingNetwork | None] = lambda: None,
    credentials: NameAndPassword | None = BROKER,
    wire: Wire = VERSION_2,
    entries: int = 1000,
    patience: float = 30.0,
) -> Load:
    """A load for as long as some entries take, or until it fails; what was told is read.

    :param patience: seconds until a bookie that does not answer to a proof counts as not convinced
    """

    def prove(random: Callable[[int], bytes]) -> AuthProvider:
        assert credentials is not None
        return digest_auth_provider(credentials, random)._replace(answer_seconds=patience)

    async def scenario() -> Load:
        process = await Process.start(servers, folder, network(), prove if credentials else None, wire)
        load = Load(await process.store.create(Quorums(1, 1, 1), {}))
        try:
            await until_true(lambda: load.told >= entries or load.failed is not None)
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


@pytest.mark.parametrize("wire", [VERSION_2, VERSION_3], ids=["version 2", "version 3"])
def test_a_client_with_a_password_writes_and_reads(
    guarded: BookKeeperServers, tmp_path: Path, wire: Wire
) -> None:
    assert lived(guarded, tmp_path, wire=wire, entries=100).failed is None


@pytest.mark.parametrize(
    ("credentials", "told"),
    [
        (None, ""),
        (NameAndPassword("broker", "another"), "it does not accept the user 'broker' with this password"),
        (NameAndPassword("stranger", BROKER.password), "it does not accept the user 'stranger' with this"),
    ],
)
def test_who_does_not_know_the_password_gets_nothing_stored(
    guarded: BookKeeperServers,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    credentials: NameAndPassword | None,
    told: str,
) -> None:
    with caplog.at_level(logging.WARNING):
        load = lived(guarded, tmp_path, credentials=credentials, patience=1.0)
    assert isinstance(load.failed, NotEnoughBookies)
    assert load.told == -1
    assert told in str(load.failed)
    assert BROKER.password not in f"{caplog.text}{load.failed}"


def test_a_broker_goes_by_its_settings(
    guarded: BookKeeperServers, authority: Authority, tmp_path: Path
) -> None:
    """Both at once: with a certificate, and a password from a file as Java has it."""
    own = authority.client("broker")
    one = {f"managedLedgerDefault{name}": 1 for name in ("EnsembleSize", "WriteQuorum", "AckQuorum")}
    broker = BrokerProcess(
        tmp_path,
        guarded,
        bookkeeperClientAuthenticationPlugin="org.apache.bookkeeper.sasl.SASLClientProviderFactory",
        bookkeeperClientAuthenticationParametersName="saslJaasClientSectionName",
        bookkeeperClientAuthenticationParameters="BookKeeper",
        magnetarJaasConfigPath=str(guarded.folder / "jaas.conf"),
        bookkeeperTLSClientAuthentication="true",
        bookkeeperTLSKeyFilePath=own.key,
        bookkeeperTLSCertificateFilePath=own.certificate,
        bookkeeperTLSTrustCertsFilePath=authority.trust,
        **one,
    )
    try:
        broker.start()
        client = pulsar.Client(broker.url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
        try:
            producer = client.create_producer("guarded")
            for number in range(10):
                producer.send(b"%d" % number)
            reader = client.create_reader("guarded", pulsar.MessageId.earliest)
            assert [reader.read_next(10_000).data() for _ in range(10)] == [b"%d" % n for n in range(10)]
        finally:
            client.close()
    finally:
        broker.close()
