"""Flags beat the environment, which beats the file; what cannot be honoured is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.cli.cluster_access import AccessRefused, cluster_access


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLIENT_CONF", "ADMIN_URL", "SERVICE_URL", "AUTH_PLUGIN", "AUTH_PARAMS"):
        monkeypatch.delenv(f"PULSAR_{name}", raising=False)


def configured(monkeypatch: pytest.MonkeyPatch, folder: Path, **settings: str) -> None:
    path = folder / "client.conf"
    path.write_text("# as Pulsar's\n" + "".join(f"{key}={value}\n" for key, value in settings.items()))
    monkeypatch.setenv("PULSAR_CLIENT_CONF", str(path))


def proof(flags: dict[str, str | bool | None]) -> bytes | None:
    authentication = cluster_access(flags).authentication
    return authentication.data() if authentication is not None else None


def test_without_anything() -> None:
    found = cluster_access({"webServiceUrl": None, "tlsAllowInsecureConnection": False})
    assert (found.service_url, found.admin_url) == ("pulsar://localhost:6650", "http://localhost:8080")
    assert found.authentication is None
    assert found.tls.verify
    assert found.tls.verify_host


def test_which_one_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured(
        monkeypatch, tmp_path, authPlugin="token", authParams="token:of.the.file", webServiceUrl="http://f"
    )
    assert proof({}) == b"of.the.file"
    monkeypatch.setenv("PULSAR_AUTH_PARAMS", "token:of.the.environment")
    monkeypatch.setenv("PULSAR_ADMIN_URL", "http://e")
    assert proof({"authParams": None}) == b"of.the.environment"
    assert proof({"authParams": "token:of.the.flag"}) == b"of.the.flag"
    assert cluster_access({}).admin_url == "http://e"
    assert cluster_access({"webServiceUrl": "http://f"}).admin_url == "http://f"


def test_tls_of_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured(
        monkeypatch,
        tmp_path,
        serviceUrl="pulsar+ssl://a",
        tlsTrustCertsFilePath="/t",
        tlsCertificateFilePath="/c",
        tlsKeyFilePath="/k",
        tlsAllowInsecureConnection="true",
        tlsEnableHostnameVerification="false",
    )
    found = cluster_access({})
    assert found.service_url == "pulsar+ssl://a"
    assert found.admin_url == "http://localhost:8080"
    files = found.tls.files
    assert (files.trust, files.certificate, files.key) == ("/t", "/c", "/k")
    assert not found.tls.verify
    assert not found.tls.verify_host
    assert cluster_access({"tlsEnableHostnameVerification": True}).tls.verify_host


def test_key_stores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured(
        monkeypatch,
        tmp_path,
        useKeyStoreTls="true",
        tlsTrustStoreType="PKCS12",
        tlsTrustStorePath="/t.p12",
        tlsTrustStorePassword="kept",
    )
    found = cluster_access({})
    assert (found.tls.files.trust_store, found.tls.files.trust_store_password) == ("/t.p12", "kept")
    assert "kept" not in repr(found)


def test_a_proxy_for_connections_to_brokers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    configured(monkeypatch, tmp_path, proxyServiceUrl="pulsar+ssl://kept:1", proxyProtocol="SNI")
    assert cluster_access({}).client_options()["proxy_service_url"] == "pulsar+ssl://kept:1"
    found = cluster_access({"proxyServiceUrl": "pulsar+ssl://given:2", "proxyProtocol": "SNI"})
    assert found.client_options()["proxy_service_url"] == "pulsar+ssl://given:2"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"useKeyStoreTls": "true", "tlsTrustStorePath": "/t.jks"},
            "tlsTrustStoreType=JKS is not supported, because only Java",
        ),
        ({"tlsAllowInsecureConnection": "perhaps"}, "tlsAllowInsecureConnection must be true or false"),
        (
            {"proxyServiceUrl": "pulsar+ssl://p", "proxyProtocol": "SOCKS"},
            "proxyProtocol must be SNI, not 'SOCKS'",
        ),
        ({"sslFactoryPlugin": "a.B"}, "names a Java class"),
        ({"authPlugin": "a.B", "authParams": "kept"}, "unknown plugin 'a.B'"),
        ({"authPlugin": "token", "authParams": "file:/not/there"}, "/not/there cannot be read"),
    ],
)
def test_what_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    configured(monkeypatch, tmp_path, **settings)
    with pytest.raises((AccessRefused, ValueError), match=told) as refusal:
        proof({})
    assert "kept" not in str(refusal.value)


def test_a_file_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PULSAR_CLIENT_CONF", str(tmp_path / "none"))
    with pytest.raises(AccessRefused, match="none cannot be read"):
        cluster_access({})
