"""TLS contexts out of files; what is told of files that cannot be used."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from magnetar.io.tls import TlsFiles, TlsRefused, TlsRules, client_context, server_context

sys.path.append(str(Path(__file__).parents[1] / "security"))
from keys import certificate, ec_key, pem, private_pem

CA = ("issuer", ec_key(number=1))
NO_RULES = TlsRules()


class Files:
    """Certificates and keys in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = self.write("ca.pem", pem(certificate("issuer", CA[1])))
        self.key = self.write("key.pem", private_pem(ec_key()))
        self.server = self.issued("server")

    def write(self, name: str, data: bytes) -> str:
        (self.folder / name).write_bytes(data)
        return str(self.folder / name)

    def issued(self, name: str, *, days: int = 1, hosts: tuple[str, ...] = ("localhost",)) -> str:
        return self.write(f"{name}.pem", pem(certificate(name, ec_key(), CA, days=days, hosts=hosts)))

    def store(self, password: bytes = b"secret", *, with_key: bool = True) -> str:
        protect = BestAvailableEncryption(password) if password else NoEncryption()
        made = certificate("server", ec_key(), CA)
        issuer = [certificate("issuer", CA[1])]
        data = (
            serialize_key_and_certificates(b"x", ec_key(), made, issuer, protect)
            if with_key
            else serialize_key_and_certificates(None, None, None, issuer, protect)
        )
        return self.write("store.p12", data)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost") -> ssl.SSLObject:
    """A handshake in memory; what the server has of it.

    :raises ssl.SSLError: one of both is not content
    """
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(down, up, server_hostname=host),
        server.wrap_bio(up, down, server_side=True),
    )
    for _ in range(10):
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert sides[0].version() == sides[1].version() is not None
    # What a server thinks of the client's certificate, TLS 1.3 tells with the first bytes.
    sides[1].write(b"x")
    assert sides[0].read(1) == b"x"
    return sides[1]


def served(files: Files, rules: TlsRules = NO_RULES, **options: bool) -> ssl.SSLContext:
    return server_context(TlsFiles(files.server, files.key, files.ca), rules, **options)


def test_a_client_that_trusts_the_issuer_is_content(files: Files) -> None:
    assert shake(served(files), client_context(TlsFiles(trust=files.ca), NO_RULES)).version() == "TLSv1.3"


@pytest.mark.parametrize(
    ("options", "host"), [({}, "elsewhere"), ({"verify_host": True}, "127.0.0.1"), ({}, "localhost.evil")]
)
def test_a_certificate_of_another_host_is_refused(files: Files, options: dict[str, bool], host: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(served(files), client_context(TlsFiles(trust=files.ca), NO_RULES, **options), host)
    shake(served(files), client_context(TlsFiles(trust=files.ca), NO_RULES, verify_host=False), host)


def test_expired_certificates_and_those_of_other_issuers_are_refused(files: Files) -> None:
    other = files.write("other.pem", pem(certificate("issuer", ec_key(number=2))))
    files.server = files.issued("old", days=-1)
    for trust in (files.ca, other):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake(served(files), client_context(TlsFiles(trust=trust), NO_RULES))
    shake(served(files), client_context(TlsFiles(trust=other), NO_RULES, verify=False))


def test_clients_show_certificates(files: Files) -> None:
    trusted = TlsFiles(files.issued("alice"), files.key, files.ca)
    nothing = TlsFiles(trust=files.ca)
    for options in ({"ask_client": True}, {"require_client": True}):
        found = shake(served(files, **options), client_context(trusted, NO_RULES)).getpeercert()
        assert found is not None
        assert found["subject"] == ((("commonName", "alice"),),)
    assert not shake(served(files, ask_client=True), client_context(nothing, NO_RULES)).getpeercert()
    with pytest.raises(ssl.SSLError):
        shake(served(files, require_client=True), client_context(nothing, NO_RULES))


@pytest.mark.parametrize("days", [-1, 1])
def test_a_client_certificate_that_is_expired_or_its_own_issuer_is_refused(files: Files, days: int) -> None:
    issuer = CA if days < 0 else None
    key = ec_key(number=3) if issuer is None else ec_key()
    shown = files.write("admin.pem", pem(certificate("admin", key, issuer, days=days)))
    own = TlsFiles(shown, files.write("admin-key.pem", private_pem(key)), files.ca)
    with pytest.raises(ssl.SSLError):
        shake(served(files, ask_client=True), client_context(own, NO_RULES))


def test_versions(files: Files) -> None:
    client = client_context(TlsFiles(trust=files.ca), NO_RULES)
    assert shake(served(files, TlsRules(["TLSv1.2"])), client).version() == "TLSv1.2"
    assert shake(served(files, TlsRules(["TLSv1", "TLSv1.3", "SSLv3"])), client).version() == "TLSv1.3"
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(files.ca)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        shake(served(files, TlsRules(["TLSv1.3"])), old)


@pytest.mark.parametrize(
    "rules",
    [
        TlsRules(["TLSv1.1"]),
        TlsRules(["TLSv9"]),
        TlsRules(ciphers=["NO-SUCH-CIPHER"]),
        TlsRules(["TLSv1.2"], ["TLS_AES_128_GCM_SHA256"]),
        TlsRules(["TLSv1.3"], ["ECDHE-ECDSA-AES128-GCM-SHA256"]),
    ],
)
def test_rules_that_leave_nothing_are_refused(files: Files, rules: TlsRules) -> None:
    with pytest.raises(TlsRefused):
        served(files, rules)


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_ciphers_by_the_names_of_openssl_and_java(files: Files, name: str, used: str) -> None:
    found = shake(served(files, TlsRules(ciphers=[name])), client_context(TlsFiles(trust=files.ca), NO_RULES))
    cipher = found.cipher()
    assert cipher is not None
    assert cipher[0] == used


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
    ],
)
def test_more_names_of_java(files: Files, java: str, openssl: str) -> None:
    offered = {one["name"] for one in served(files, TlsRules(ciphers=[java])).get_ciphers()}
    assert openssl in offered


@pytest.mark.parametrize("password", [b"", b"secret"])
def test_a_pkcs12_store_is_as_good_as_the_files(files: Files, password: bytes) -> None:
    text = password.decode()
    both = TlsFiles(key_store=files.store(password), key_store_password=text)
    store = files.write("trust.p12", Path(files.store(password, with_key=False)).read_bytes())
    files.store(password)
    trusting = client_context(TlsFiles(trust_store=store, trust_store_password=text), NO_RULES)
    shake(server_context(both, NO_RULES), trusting)
    assert "secret" not in repr(both)


Broken = Callable[[Files], TlsFiles]


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda f: TlsFiles(), "needs a certificate"),
        (lambda f: TlsFiles(f.server), "needs a certificate"),
        (lambda f: TlsFiles(f.server, "/nowhere"), "/nowhere cannot be read"),
        (lambda f: TlsFiles(str(f.folder), f.key), "cannot be read"),
        (lambda f: TlsFiles(f.server, f.ca), "not a certificate and its key"),
        (
            lambda f: TlsFiles(f.server, f.write("k", private_pem(ec_key(number=4)))),
            "not a certificate and its",
        ),
        (lambda f: TlsFiles(f.server, f.write("k", encrypted())), "encrypted"),
        (lambda f: TlsFiles(f.server, f.key), "no trusted certificate authorities are set"),
        (lambda f: TlsFiles(f.server, f.key, f.key), "has no certificates"),
        (lambda f: TlsFiles(f.server, f.key, "/nowhere"), "/nowhere cannot be read"),
        (lambda f: TlsFiles(key_store=f.store(), key_store_password="wrong"), "password"),
        (
            lambda f: TlsFiles(key_store=f.store(with_key=False), key_store_password="secret"),
            "no private key",
        ),
        (lambda f: TlsFiles(key_store=f.key), "PKCS12"),
        (lambda f: TlsFiles(key_store=f.write("j", b"\xfe\xed\xfe\xed" + bytes(99))), "JKS.*keytool"),
    ],
)
def test_files_that_cannot_be_used_are_named(files: Files, broken: Broken, why: str) -> None:
    with pytest.raises(TlsRefused, match=why) as refusal:
        server_context(broken(files), NO_RULES, ask_client=True)
    assert "secret" not in str(refusal.value).replace(str(files.folder), "")


def encrypted() -> bytes:
    return ec_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
