"""Reads the file of ``metadataStoreConfigPath``: properties of ZooKeeper's Java client, of which only the TLS
properties have an effect.

Names and defaults: https://zookeeper.apache.org/doc/r3.9.4/zookeeperAdmin.html and the guide to TLS,
https://cwiki.apache.org/confluence/display/ZOOKEEPER/ZooKeeper+SSL+User+Guide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from magnetar.config.properties import PropertyError, parse_properties
from magnetar.lazy_dataclass import dataclass

SECURE = "zookeeper.client.secure"
_SSL = "zookeeper.ssl."
_SASL = "zookeeper.sasl."
_TYPES = ("PEM", "PKCS12", "JKS", "BCFKS")
_EXTENSIONS = {".pem": "PEM", ".p12": "PKCS12", ".jks": "JKS", ".bcfks": "BCFKS"}
_READ = ("PEM", "PKCS12")
_STORE = ("location", "type", "password", "passwordPath")
_HONOURED = frozenset(
    [f"{_SSL}{store}.{name}" for store in ("keyStore", "trustStore") for name in _STORE]
    + [f"{_SSL}{name}" for name in ("hostnameVerification", "protocol", "enabledProtocols", "ciphersuites")]
)
_OF_SERVERS_OR_JAVA = frozenset(
    f"{_SSL}{name}"
    for name in (
        "clientAuth",
        "clientHostnameVerification",
        "authProvider",
        "sslProvider",
        "handshakeDetectionTimeoutMillis",
    )
)
"""Properties that are accepted without an effect, because Magnetar's own client has no such feature."""
_REFUSED = {
    f"{_SSL}context.supplier.class": "no Java classes are loaded",
    f"{_SSL}crl": "certificate revocation is not checked",
    f"{_SSL}ocsp": "certificate revocation is not checked",
    f"{_SASL}client": "SASL is not supported; magnetarZooKeeperPassword is for the scheme digest",
}
"""Properties that are refused unless their value is false."""


class ZooKeeperClientRefused(ValueError):
    """The file cannot be used; the message says why, without secrets."""


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A file with a private key and its certificates, or with trusted certificates."""

    location: str = ""
    """The path of the file; empty: no file."""
    pkcs12: bool = False
    """Whether the file is PKCS12; otherwise it is PEM."""
    password: str = field(default="", repr=False)
    password_path: str = ""
    """The path of a file with the password, which takes precedence over the password; empty: no file."""


@dataclass(frozen=True, slots=True)
class SecureClient:
    """The TLS settings of a ZooKeeper client."""

    own: KeyStore
    trusted: KeyStore
    """The trusted CA certificates; an empty location means the system's CA certificates."""
    verify_host: bool
    protocols: tuple[str, ...]
    ciphers: tuple[str, ...]


def secure_client(path: str) -> SecureClient | None:
    """Returns the TLS settings in a file, or None if the file does not enable TLS.

    :raises ZooKeeperClientRefused: the file cannot be read, or requires something that is not supported
    """
    given = _properties(path)
    for name, value in given.items():
        _check(path, name, value)
    if not _truth(path, given, SECURE, default=False):
        if named := [name for name in given if name in _HONOURED]:
            raise ZooKeeperClientRefused(f"{path}: {named[0]} is set, but TLS is off; set {SECURE}=true")
        return None
    protocols = given.get(f"{_SSL}enabledProtocols") or given.get(f"{_SSL}protocol", "")
    return SecureClient(
        _store(path, given, "keyStore"),
        _store(path, given, "trustStore"),
        _truth(path, given, f"{_SSL}hostnameVerification", default=True),
        _names(protocols),
        _names(given.get(f"{_SSL}ciphersuites", "")),
    )


def _properties(path: str) -> Mapping[str, str]:
    try:
        # In Java's encoding.
        found = parse_properties(Path(path).read_text("iso-8859-1"))
    except (OSError, ValueError) as error:
        where = f"{path}:{error.line}" if isinstance(error, PropertyError) else path
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ZooKeeperClientRefused(f"{where} cannot be read: {why}") from error
    return {item.key.strip(): item.value.strip() for item in found}


def _check(path: str, name: str, value: str) -> None:
    """Checks one property of the configuration file of ZooKeeper's client.

    :raises ZooKeeperClientRefused: the property concerns security and is not supported
    """
    if name in _REFUSED:
        if value.lower() != "false":
            raise ZooKeeperClientRefused(f"{path}: {name}: {_REFUSED[name]}")
    elif name.startswith((_SSL, _SASL)) and name not in _HONOURED | _OF_SERVERS_OR_JAVA:
        raise ZooKeeperClientRefused(f"{path}: {name} is not supported")


def _truth(path: str, given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, "").lower()
    if text not in ("", "true", "false"):
        raise ZooKeeperClientRefused(f"{path}: {name} must be true or false, not {text!r}")
    return text == "true" if text else default


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, text.split(","))))


def _store(path: str, given: Mapping[str, str], which: str) -> KeyStore:
    location, kind, password, password_path = (given.get(f"{_SSL}{which}.{name}", "") for name in _STORE)
    if not location:
        return KeyStore()
    kind = kind.upper() or _EXTENSIONS.get(Path(location).suffix, "")
    if kind not in _TYPES:
        raise ZooKeeperClientRefused(
            f"{path}: the type of the key store {location} is unknown; set {_SSL}{which}.type"
        )
    if kind not in _READ:
        raise ZooKeeperClientRefused(
            f"{path}: {_SSL}{which}.location: {location} is a key store of type {kind}, which only Java "
            "reads; convert it to PKCS12 (keytool -importkeystore -deststoretype pkcs12)"
        )
    return KeyStore(location, kind == "PKCS12", password, password_path)
