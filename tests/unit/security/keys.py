"""Keys, certificates and a way to ask providers, for the tests beside it. Each key is made once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID
from simulated_io import Simulation

from magnetar.security.authentication import Authenticated, Credentials, Provider

SECRET = bytes(range(48))


@cache
def rsa_key(number: int = 0, bits: int = 2048) -> rsa.RSAPrivateKey:
    """``number`` tells keys apart."""
    return rsa.generate_private_key(65537, bits)


@cache
def ec_key(curve: str = "secp256r1", number: int = 0) -> ec.EllipticCurvePrivateKey:
    curves = {"secp256r1": ec.SECP256R1, "secp384r1": ec.SECP384R1, "secp521r1": ec.SECP521R1}
    return ec.generate_private_key({**curves, "secp256k1": ec.SECP256K1}[curve]())


def public_der(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return found


def public_pem(key: Any) -> bytes:
    found: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def private_pem(key: Any) -> bytes:
    found: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return found


def token(claims: Mapping[str, Any], key: Any = SECRET, algorithm: str = "HS256", **header: Any) -> bytes:
    return jwt.encode(dict(claims), key, algorithm, header or None).encode()


def ask(world: Simulation, provider: Provider, data: bytes, peer: str = "1.2.3.4:5") -> Authenticated:
    """What a provider says to a client's proof.

    :raises AuthenticationFailure: it proves nothing
    """
    return world.loop.run_until(provider.authenticate(Credentials(provider.method, data, peer)))


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def certificate(
    common: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[str, ec.EllipticCurvePrivateKey] | None = None,
    *,
    days: int = 1,
    hosts: tuple[str, ...] = ("localhost",),
) -> x509.Certificate:
    """Signed by ``issuer``, or by itself; ``days`` below 0: it has run out."""
    by, with_key = issuer or (common, key)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(common))
        .issuer_name(_name(by))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=5))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts]), critical=False)
    )
    return made.sign(with_key, hashes.SHA256())


def pem(made: x509.Certificate) -> bytes:
    return made.public_bytes(Encoding.PEM)
