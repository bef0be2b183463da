"""TLS contexts from files with certificates, keys and CA certificates, which are read again after changes."""

from __future__ import annotations

import os
import ssl
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from magnetar.lazy_dataclass import dataclass

_VERSIONS = {
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_TOO_OLD = ("SSLv2", "SSLv3", "TLSv1", "TLSv1.1")
_NAMES_OF_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
HANDSHAKE_SECONDS = 10.0


class TlsRefused(ValueError):
    """A TLS context cannot be made from the given files or names; the message names them and the reason, and
    contains no secret."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files with a certificate, its key and the trusted CA certificates; an empty path means that there
    is no such file."""

    certificate: str = ""
    """A PEM file with the certificate and the chain to the issuer."""
    key: str = ""
    """A PEM file with the key, possibly the same file as :attr:`certificate`."""
    trust: str = ""
    """A PEM file with one or more trusted CA certificates."""
    key_store: str = ""
    """A PKCS12 file with certificate and key, instead of the PEM files."""
    key_store_password: str = field(default="", repr=False)
    """The password of the key store, or of an encrypted PEM key."""
    trust_store: str = ""
    """A PKCS12 file with trusted CA certificates, instead of :attr:`trust`."""
    trust_store_password: str = field(default="", repr=False)
    """The password of the trust store."""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Returns all configured files."""
        named = (self.certificate, self.key, self.trust, self.key_store, self.trust_store)
        return tuple(Path(name) for name in named if name)

    def showing(self, own: tuple[str, str] | None) -> TlsFiles:
        """Returns these files, with ``own`` as certificate file and key file; None: no file is replaced."""
        if own is None:
            return self
        return replace(self, certificate=own[0], key=own[1], key_store="", key_store_password="")


@dataclass(frozen=True, slots=True)
class TlsRules:
    """The TLS versions and ciphers that a server or client accepts."""

    protocols: Sequence[str] = ()
    """The accepted versions: ``TLSv1.2``, ``TLSv1.3`` or both; empty: both."""
    ciphers: Sequence[str] = ()
    """The accepted ciphers, in OpenSSL's or Java's names; empty: OpenSSL's default."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """The TLS settings of a client."""

    files: TlsFiles = TlsFiles()
    verify: bool = True
    """Whether the server's certificate is verified; False: any server is accepted."""
    verify_host: bool = True
    """Whether the server's certificate must contain the name to which the client connects."""
    rules: TlsRules = TlsRules()
    proxy: tuple[str, int] | None = None
    """Host and port of a proxy for all connections; None: no proxy. The proxy passes each connection on to
    the server that the handshake names (SNI)."""


def server_context(
    files: TlsFiles, rules: TlsRules, *, ask_client: bool = False, require_client: bool = False
) -> ssl.SSLContext:
    """Makes the context of a server.

    :param ask_client: whether clients are asked for a certificate, which is verified if they send one
    :param require_client: whether clients without a certificate are refused
    :raises TlsRefused: the files cannot be used
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _apply_rules(context, rules)
    if not (files.key_store or (files.certificate and files.key)):
        raise TlsRefused("a server needs a certificate and its key: set both files")
    _load_own(context, files)
    if ask_client or require_client:
        if not (files.trust or files.trust_store):
            raise TlsRefused(
                "client certificates are required, but no trusted certificate authorities are set"
            )
        _load_trust(context, files)
        context.verify_mode = ssl.CERT_REQUIRED if require_client else ssl.CERT_OPTIONAL
    return context


def client_context(
    files: TlsFiles, rules: TlsRules, *, verify: bool = True, verify_host: bool = True
) -> ssl.SSLContext:
    """Makes the context of a client; without CA certificates in the files, the system's apply.

    :param verify: whether the server's certificate is verified; False: any server is accepted
    :param verify_host: whether the certificate must contain the name to which the client connects
    :raises TlsRefused: the files cannot be used
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _apply_rules(context, rules)
    context.check_hostname = verify and verify_host
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    elif files.trust or files.trust_store:
        _load_trust(context, files)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if files.key_store or files.certificate:
        _load_own(context, files)
    return context


class ClientContext:
    """The context of a client, made on first use and again after its files have changed."""

    def __init__(self, wanted: ClientTls) -> None:
        self._wanted = wanted
        self._made: ssl.SSLContext | None = None
        self._seen: Sequence[tuple[int, int, int]] = ()

    def __call__(self) -> ssl.SSLContext:
        """Returns the context; blocks, because it checks the files.

        :raises TlsRefused: the files cannot be used
        """
        seen = [_state(path) for path in self._wanted.files.paths]
        if self._made is None or seen != self._seen:
            wanted = self._wanted
            self._made = client_context(
                wanted.files, wanted.rules, verify=wanted.verify, verify_host=wanted.verify_host
            )
            self._seen = seen
        return self._made


def _state(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except (OSError, ValueError) as error:
        raise TlsRefused(f"{path} cannot be read: {_why(error)}") from error
    return found.st_mtime_ns, found.st_size, found.st_ino


def _apply_rules(context: ssl.SSLContext, rules: TlsRules) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if rules.protocols:
        wanted = [name for name in rules.protocols if name not in _TOO_OLD]
        unknown = [name for name in wanted if name not in _VERSIONS]
        if unknown:
            raise TlsRefused(f"{', '.join(unknown)}: unknown TLS version; use TLSv1.2 or TLSv1.3")
        if not wanted:
            raise TlsRefused("none of the configured TLS versions is still safe; use TLSv1.2 or TLSv1.3")
        context.minimum_version = min(_VERSIONS[name] for name in wanted)
        context.maximum_version = max(_VERSIONS[name] for name in wanted)
    if rules.ciphers:
        _choose_ciphers(context, rules.ciphers)


def _choose_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """Chooses the ciphers. Python cannot select among the ciphers of TLS 1.3: naming one enables all of
    them.
    """
    older = [_openssl_name(name) for name in names if name not in _NAMES_OF_1_3]
    if not older:
        if context.maximum_version is ssl.TLSVersion.TLSv1_2:
            raise TlsRefused(
                f"the ciphers {', '.join(names)} are for TLSv1.3, which is not configured: add one for "
                "TLSv1.2, or allow TLSv1.3"
            )
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(older))
    except ssl.SSLError as error:
        raise TlsRefused(f"none of the ciphers {', '.join(names)} is known") from error
    if len(older) == len(names) and context.minimum_version is ssl.TLSVersion.TLSv1_3:
        raise TlsRefused(
            f"none of the ciphers {', '.join(names)} is for TLSv1.3, the only configured version: add one "
            "for TLSv1.3, or allow TLSv1.2"
        )
    if len(older) == len(names) and context.maximum_version is not ssl.TLSVersion.TLSv1_2:
        context.maximum_version = ssl.TLSVersion.TLSv1_2


def _openssl_name(name: str) -> str:
    """Returns OpenSSL's name: ``ECDHE-RSA-AES128-GCM-SHA256`` for
    ``TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256``."""
    if not name.startswith("TLS_"):
        return name
    text = name.removeprefix("TLS_").replace("_WITH_", "_").removeprefix("RSA_AES").replace("_", "-")
    if name.startswith("TLS_RSA_WITH_AES"):
        text = "AES" + text
    return text.replace("AES-", "AES").replace("-CBC-", "-").replace("-POLY1305-SHA256", "-POLY1305")


def _load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.key_store:
        _load_key_store(context, files.key_store, files.key_store_password)
        return
    if not files.key:
        raise TlsRefused(f"{files.certificate} is given without its key")
    for path in (files.certificate, files.key):
        _check_readable(path)
    password = files.key_store_password or _no_password
    try:
        context.load_cert_chain(files.certificate, files.key, password=password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise TlsRefused(
            f"{files.certificate} and {files.key} are not a certificate and its key: {_why(error)}"
        ) from error


def _no_password() -> str:
    raise TlsRefused("the key is encrypted, but no password can be set for it")


def _load_trust(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.trust_store:
        for certificate in _store_certificates(files.trust_store, files.trust_store_password):
            context.load_verify_locations(cadata=certificate)
        return
    _check_readable(files.trust)
    try:
        context.load_verify_locations(cafile=files.trust)
    except (ssl.SSLError, OSError) as error:
        raise TlsRefused(f"{files.trust} has no certificates: {_why(error)}") from error


def _check_readable(path: str) -> None:
    """Checks that a file can be read.

    :raises TlsRefused: the file cannot be read
    """
    try:
        with open(path, "rb"):
            pass
    except (OSError, ValueError) as error:
        raise TlsRefused(f"{path} cannot be read: {_why(error)}") from error


def _read_store(path: str) -> bytes:
    _check_readable(path)
    data = Path(path).read_bytes()
    if data[:4] in (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce"):
        raise TlsRefused(
            f"{path} is a JKS key store, which only Java reads; convert it to PKCS12 (keytool "
            "-importkeystore -deststoretype pkcs12)"
        )
    return data


def _load_key_store(context: ssl.SSLContext, path: str, password: str) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

    data = _read_store(path)
    try:
        key, certificate, others = load_key_and_certificates(data, password.encode() or None)
    except ValueError as error:
        raise TlsRefused(f"{path} is not a PKCS12 key store, or has another password") from error
    if key is None or certificate is None:
        raise TlsRefused(f"{path} contains a certificate but no private key")
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for one in (certificate, *others):
        pem += one.public_bytes(Encoding.PEM)
    # OpenSSL reads a key from a file only; this one never gets to a disk.
    number = os.memfd_create("magnetar-key", os.MFD_CLOEXEC)
    try:
        os.write(number, pem)
        context.load_cert_chain(f"/proc/self/fd/{number}")
    except (ssl.SSLError, OSError) as error:
        raise TlsRefused(f"{path}: the private key cannot be used: {_why(error)}") from error
    finally:
        os.close(number)


def _store_certificates(path: str, password: str) -> list[bytes]:
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12

    data = _read_store(path)
    try:
        store = load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise TlsRefused(f"{path} is not a PKCS12 trust store, or has another password") from error
    found = [one.certificate.public_bytes(Encoding.DER) for one in store.additional_certs]
    if store.cert is not None:
        found.append(store.cert.certificate.public_bytes(Encoding.DER))
    if not found:
        raise TlsRefused(f"{path} has no certificates")
    return found


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or error)
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
