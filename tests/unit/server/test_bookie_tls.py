"""TLS towards bookies, by the settings of a cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from certificates import Authority

from magnetar.config.settings import SettingsContradict, load
from magnetar.io.interfaces import ConnectingNetwork
from magnetar.server.cluster_access import bookie_network


def network(tmp_path: Path, **lines: str) -> ConnectingNetwork | None:
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"bookkeeper{name}={value}\n" for name, value in lines.items()))
    settings = load(path, cluster=True).cluster
    assert settings is not None

    async def made() -> ConnectingNetwork | None:
        return bookie_network(asyncio.get_running_loop(), settings)

    return asyncio.run(made())


def test_bookies_are_spoken_to_in_plain_text_unless_it_is_asked_for(tmp_path: Path) -> None:
    assert network(tmp_path, TLSKeyFilePath="/nowhere") is None


def test_files_are_pem_or_pkcs12(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.client("broker")
    files = {"TLSKeyFilePath": own.key, "TLSCertificateFilePath": own.certificate}
    assert network(tmp_path, TLSClientAuthentication="true", TLSTrustCertsFilePath=authority.trust, **files)
    password = tmp_path / "password"
    password.write_text("secret\n")
    stored = {"TLSTrustCertTypes": "PKCS12", "TLSTrustStorePasswordPath": str(password)}
    trust = authority.trust_store("secret")
    assert network(tmp_path, TLSClientAuthentication="true", TLSTrustCertsFilePath=trust, **files, **stored)
    password.write_text("wrong")
    with pytest.raises(SettingsContradict, match="PKCS12 trust store"):
        network(tmp_path, TLSClientAuthentication="true", TLSTrustCertsFilePath=trust, **files, **stored)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ({}, "requires bookkeeperTLSKeyFilePath"),
        ({"TLSKeyFileType": "JKS"}, "bookkeeperTLSKeyFileType=JKS is not supported; use PEM or PKCS12"),
        ({"TLSKeyFilePath": "/nowhere", "TLSTrustCertsFilePath": "/nowhere"}, "/nowhere cannot be read"),
        (
            {
                "TLSKeyFilePath": "/nowhere",
                "TLSTrustCertsFilePath": "/nowhere",
                "TLSKeyStorePasswordPath": "/nothing",
            },
            "/nothing, the file with the password",
        ),
    ],
)
def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path, lines: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsContradict, match=why):
        network(tmp_path, TLSClientAuthentication="true", **lines)
