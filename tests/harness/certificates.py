"""Certificates for tests: an authority, a server's for this machine, and those of clients by role."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, in files."""

    certificate: str
    key: str


class Authority:
    """Issues certificates into a folder; its keys are on elliptic curves, which are made at once."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(self._name, self._key)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._certificate = made.sign(self._key, hashes.SHA256())
        self.trust = str(folder / f"{name}.pem")
        """The authority's own certificate."""
        Path(self.trust).write_bytes(self._certificate.public_bytes(Encoding.PEM))

    def server(self, name: str = "server", hosts: tuple[str, ...] = ("localhost", "127.0.0.1")) -> Pair:
        """:param hosts: names and addresses that it is good for"""
        alternatives = [_alternative(host) for host in hosts]
        return self._issue(name, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, role: str) -> Pair:
        """For a client whose certificate says ``role``."""
        return self._issue(role, ExtendedKeyUsageOID.CLIENT_AUTH, [])

    def trust_store(self, password: str) -> str:
        """The authority's certificate as PKCS12."""
        path = self.folder / "trust.p12"
        entry = pkcs12.PKCS12Certificate(self._certificate, b"ca")
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(
                None, None, None, [entry.certificate], BestAvailableEncryption(password.encode())
            )
        )
        return str(path)

    def _issue(self, name: str, usage: x509.ObjectIdentifier, alternatives: list[x509.GeneralName]) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(subject, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if alternatives:
            made = made.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        signed = made.sign(self._key, hashes.SHA256())
        pair = Pair(str(self.folder / f"{name}.cert.pem"), str(self.folder / f"{name}.key.pem"))
        Path(pair.certificate).write_bytes(signed.public_bytes(Encoding.PEM))
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        Path(pair.key).write_bytes(pem)
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)
            .not_valid_after(now + 30 * _DAY)
        )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
