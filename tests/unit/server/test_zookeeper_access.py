"""How ZooKeeper is spoken to, by the settings of a cluster and files of ZooKeeper's own client."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from certificates import Authority
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from magnetar.config.proxy import load_proxy
from magnetar.config.settings import SettingsContradict, load
from magnetar.config.websocket import load_websockets
from magnetar.server.cluster_access import (
    MetadataAccess,
    ZooKeeperAccess,
    alone_access,
    cluster_access,
    session_settings,
)

SECURE = (
    "zookeeper.client.secure=true\nzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
)


def client_file(tmp_path: Path, text: str, name: str = "zk.conf") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def access(tmp_path: Path, **lines: str) -> MetadataAccess:
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
    settings = load(path, cluster=True).cluster
    assert settings is not None
    return cluster_access(settings)


def context_of(found: ZooKeeperAccess) -> ssl.SSLContext:
    assert found.context is not None
    return found.context()


@pytest.mark.parametrize("text", ["", "zookeeper.client.secure=false\n", "zookeeper.request.timeout=5\n"])
def test_a_file_that_asks_for_no_tls_is_plain_text(tmp_path: Path, text: str) -> None:
    assert access(tmp_path).local.context is None
    assert access(tmp_path, metadataStoreConfigPath=client_file(tmp_path, text)).local.context is None


def test_stores_are_pem_by_type_or_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.client("broker")
    key = load_pem_private_key(Path(own.key).read_bytes(), None)
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    both = client_file(tmp_path, locked.decode() + Path(own.certificate).read_text(), "own.pem")
    text = (
        f"{SECURE}zookeeper.ssl.trustStore.location={authority.trust}\n"
        f"zookeeper.ssl.keyStore.location={both}\nzookeeper.ssl.keyStore.type=pem\n"
        "zookeeper.ssl.keyStore.password=secret\nzookeeper.ssl.enabledProtocols=TLSv1.2\n"
    )
    found = context_of(access(tmp_path, metadataStoreConfigPath=client_file(tmp_path, text)).local)
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert found.maximum_version is ssl.TLSVersion.TLSv1_2
    wrong = client_file(tmp_path, text.replace("=secret", "=mistaken"))
    with pytest.raises(SettingsContradict, match="not a certificate and its key") as caught:
        access(tmp_path, metadataStoreConfigPath=wrong)
    assert "mistaken" not in str(caught.value)


def test_pkcs12_is_read_with_a_password_from_a_file_first(tmp_path: Path) -> None:
    trust = Authority(tmp_path).trust_store("secret")
    password = client_file(tmp_path, "secret\n", "password")
    text = (
        f"{SECURE}zookeeper.ssl.trustStore.location={trust}\nzookeeper.ssl.trustStore.password=another\n"
        f"zookeeper.ssl.trustStore.passwordPath={password}\nzookeeper.ssl.hostnameVerification=false\n"
    )
    found = context_of(access(tmp_path, metadataStoreConfigPath=client_file(tmp_path, text)).local)
    assert (found.verify_mode, found.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_the_local_file_counts_for_what_clusters_share_unless_that_has_its_own(tmp_path: Path) -> None:
    secure, plain = client_file(tmp_path, SECURE), client_file(tmp_path, "", "plain.conf")
    found = access(tmp_path, metadataStoreConfigPath=secure)
    assert found.configuration == found.local
    found = access(tmp_path, metadataStoreConfigPath=secure, configurationStoreConfigPath=plain)
    assert (found.local.context is None, found.configuration.context is None) == (False, True)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            f"{SECURE}zookeeper.ssl.trustStore.location=/t.jks",
            "/t.jks is a key store of type JKS, which only",
        ),
        (f"{SECURE}zookeeper.ssl.keyStore.location=/k\nzookeeper.ssl.keyStore.type=BCFKS", "of type BCFKS"),
        (
            f"{SECURE}zookeeper.ssl.keyStore.location=/keys",
            "the type of the key store /keys is unknown",
        ),
        (f"{SECURE}zookeeper.ssl.trustStore.location=/nowhere.pem", "/nowhere.pem cannot be read"),
        (
            f"{SECURE}zookeeper.ssl.trustStore.location=/t.p12\nzookeeper.ssl.trustStore.passwordPath=/nothing",
            "/nothing, the file with the password",
        ),
        (f"{SECURE}zookeeper.ssl.ocsp=true", "ocsp: certificate revocation is not checked"),
        (f"{SECURE}zookeeper.ssl.context.supplier.class=com.example.It", "no Java classes are loaded"),
        (f"{SECURE}zookeeper.ssl.pinned=x", "zookeeper.ssl.pinned is not supported"),
        (f"{SECURE}zookeeper.ssl.protocol=TLSv9", "TLSv9: unknown TLS version"),
        ("zookeeper.sasl.client.username=x", "zookeeper.sasl.client.username is not supported"),
        ("zookeeper.sasl.client=true", "SASL is not supported; magnetarZooKeeperPassword"),
        ("zookeeper.client.secure=yes", "zookeeper.client.secure must be true or false"),
        (
            "zookeeper.ssl.keyStore.location=/k.pem",
            "is set, but TLS is off; set zookeeper.client.secure=true",
        ),
        ("\nzookeeper.client.secure=\\u12", "zk.conf:2 cannot be read"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(tmp_path: Path, text: str, why: str) -> None:
    path = client_file(tmp_path, text)
    for name in ("metadataStoreConfigPath", "configurationStoreConfigPath"):
        with pytest.raises(SettingsContradict, match=why) as caught:
            access(tmp_path, **{name: path})
        assert str(caught.value).startswith((f"{name}: ", "/nothing"))


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsContradict, match="metadataStoreConfigPath: /nowhere cannot be read: No such"):
        access(tmp_path, metadataStoreConfigPath="/nowhere")


def test_a_user_of_the_scheme_digest_is_said_or_in_a_file(tmp_path: Path) -> None:
    path = client_file(tmp_path, "broker:se:cret\n", "user")
    for said in ("broker:se:cret", f"file://{path}"):
        found = access(tmp_path, magnetarZooKeeperPassword=said)
        assert found.local.session.digest == found.configuration.session.digest == b"broker:se:cret"
        assert "cret" not in repr(found)
    assert access(tmp_path).local.session.digest == b""


@pytest.mark.parametrize("said", ["mistaken", ":mistaken", "mistaken:", "file:///nowhere"])
def test_what_is_no_user_with_a_password_is_refused_and_not_told(tmp_path: Path, said: str) -> None:
    with pytest.raises(SettingsContradict, match="--zookeeper-password") as caught:
        session_settings(5000, said, "--zookeeper-password")
    assert "mistaken" not in str(caught.value)
    with pytest.raises(SettingsContradict, match="magnetarZooKeeperPassword") as caught:
        access(tmp_path, magnetarZooKeeperPassword=said)
    assert "mistaken" not in str(caught.value)


def test_proxies_and_websockets_without_a_broker_have_the_same(tmp_path: Path) -> None:
    secure = client_file(tmp_path, SECURE)
    path = tmp_path / "other.conf"
    path.write_text(f"magnetarZooKeeperConfigPath={secure}\nmagnetarZooKeeperPassword=proxy:hidden\n")
    for loaded in (load_proxy(path), load_websockets(path)):
        assert "hidden" not in repr(loaded)
        found = alone_access(loaded.settings)
        assert found.session.digest == b"proxy:hidden"
        assert found.context is not None
