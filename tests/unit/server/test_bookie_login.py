"""Who a broker is for bookies, by the settings of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar.config.settings import SettingsContradict, load
from magnetar.ledger.bookkeeper.authentication import AuthProvider
from magnetar.server.cluster_access import bookie_auth_provider

PLUGIN = "org.apache.bookkeeper.sasl.SASLClientProviderFactory"
DIGEST = "org.apache.zookeeper.server.auth.DigestLoginModule"
LOGINS = f"""
BookKeeper {{ {DIGEST} required username="broker" password="of bookies"; }};
Nameless {{ {DIGEST} required password="x"; }};
Tickets {{ com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true; }};
Other {{ com.example.Login required; }};
Nobody {{ }};
"""


def proof(tmp_path: Path, **lines: str) -> AuthProvider | None:
    logins = tmp_path / "jaas.conf"
    logins.write_text(LOGINS)
    given = {
        "bookkeeperClientAuthenticationPlugin": PLUGIN,
        "magnetarJaasConfigPath": str(logins),
        **{f"bookkeeperClientAuthentication{name}": value for name, value in lines.items() if name[0] == "P"},
        **{name: value for name, value in lines.items() if name[0] != "P"},
    }
    path = tmp_path / "broker.conf"
    path.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    settings = load(path, cluster=True).cluster
    assert settings is not None
    return bookie_auth_provider(settings, bytes)


@pytest.mark.parametrize(
    "lines", [{}, {"ParametersName": "saslJaasClientSectionName"}, {"Parameters": "BookKeeper"}]
)
def test_a_password_from_a_section_of_the_file(tmp_path: Path, lines: dict[str, str]) -> None:
    found = proof(tmp_path, **lines)
    assert found is not None
    said = found.converse()
    assert (said.plugin, said.begin()) == ("sasl", b"")
    answer = said.answer(b'realm="bookkeeper",nonce="n",qop="auth",charset=utf-8,algorithm=md5-sess')
    assert answer is not None
    assert b'username="broker",realm="bookkeeper"' in answer
    assert b"of bookies" not in answer


def test_without_a_plugin_bookies_are_told_nothing(tmp_path: Path) -> None:
    assert proof(tmp_path, Plugin="") is None


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            {"Plugin": "com.example.Mine"},
            "bookkeeperClientAuthenticationPlugin=com.example.Mine is not supported; use",
        ),
        ({"ParametersName": "mine"}, "ParametersName=mine is not supported; use saslJaasClientSectionName"),
        ({"magnetarJaasConfigPath": ""}, "requires magnetarJaasConfigPath"),
        ({"magnetarJaasConfigPath": "/nowhere"}, "/nowhere cannot be read"),
        ({"Parameters": "Absent"}, "has no section Absent with a login"),
        ({"Parameters": "Nobody"}, "has no section Nobody with a login"),
        ({"Parameters": "Nameless"}, "lacks username"),
        ({"Parameters": "Tickets"}, "Kerberos"),
        ({"Parameters": "Other"}, "unknown login module com.example.Login"),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path: Path, lines: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsContradict, match=why):
        proof(tmp_path, **lines)
