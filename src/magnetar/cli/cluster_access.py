"""Addresses and credentials for commands.

Flags take precedence over environment variables. Flags and environment variables take precedence over a
``client.conf``, whose path is in ``PULSAR_CLIENT_CONF`` and whose keys are Pulsar's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magnetar.config.properties import PropertyError, parse_properties

if TYPE_CHECKING:
    from magnetar.admin_client.http import AdminHttp
    from magnetar.io.tls import ClientTls, TlsFiles
    from magnetar.security.client_authentication.authentication import Authentication

CONFIGURATION = "PULSAR_CLIENT_CONF"
_ENVIRONMENT = {
    "PULSAR_ADMIN_URL": "webServiceUrl",
    "PULSAR_SERVICE_URL": "brokerServiceUrl",
    "PULSAR_AUTH_PLUGIN": "authPlugin",
    "PULSAR_AUTH_PARAMS": "authParams",
}
_ADMIN_URL = "http://localhost:8080"
_SERVICE_URL = "pulsar://localhost:6650"
_WARNING_SECONDS = 2.0
"""Time-out of the request in :meth:`ClusterAccess.warn_of_deletion`, in seconds."""
_OWN_FACTORY = "org.apache.pulsar.common.util.DefaultPulsarSslFactory"
Flags = Mapping[str, str | bool | None]
"""Command-line flags, by the keys of ``client.conf``; None and False mean that a flag was not given."""


class AccessRefused(Exception):
    """A setting for access to the cluster cannot be used; the error text says why, and has no secrets."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The addresses of a cluster, with credentials and TLS settings."""

    service_url: str
    admin_url: str
    authentication: Authentication | None
    tls: ClientTls
    proxy_url: str | None = None
    """SNI proxy for all connections to brokers; None: no proxy."""

    def http(self, *, timeout_seconds: float, warn: Callable[[str], None] | None = None) -> AdminHttp:
        """Returns a client of the admin interface.

        :raises AdminError: the URL of the admin interface is malformed
        """
        from magnetar.admin_client.http import AdminHttp

        return AdminHttp(
            self.admin_url,
            authentication=self.authentication,
            tls=self.tls,
            timeout_seconds=timeout_seconds,
            warn=warn,
        )

    def warn_of_deletion(self, topic: str, warn: Callable[[str], None]) -> None:
        """Calls ``warn`` if the broker reports that a topic without subscriptions will be deleted soon.

        If the admin interface does not answer or refuses the request, there is no warning, because publishing
        needs neither the interface nor the permission to look at topics. If only one of service URL and admin
        URL is the default, the interface is not asked, because the URLs may belong to different clusters.
        """
        from magnetar.admin_client import AdminError, topic_path

        if (self.service_url == _SERVICE_URL) != (self.admin_url == _ADMIN_URL):
            return
        try:
            self.http(timeout_seconds=_WARNING_SECONDS, warn=warn).ask("GET", topic_path(topic) + "/explain")
        except AdminError:
            return

    def client_options(self) -> dict[str, Any]:
        """Returns the keyword arguments of ``magnetar.client.Client``."""
        return {
            "authentication": self.authentication,
            "tls_files": self.tls.files,
            "tls_allow_insecure_connection": not self.tls.verify,
            "tls_validate_hostname": self.tls.verify_host,
            "proxy_service_url": self.proxy_url,
        }


def cluster_access(flags: Flags) -> ClusterAccess:
    """Returns the addresses and credentials of a command.

    :raises AccessRefused: a setting cannot be used
    """
    from magnetar.io.tls import ClientTls
    from magnetar.security.client_authentication.authentication import NoCredentials
    from magnetar.security.client_authentication.plugins import authentication_of

    found = _settings(flags)
    try:
        authentication = authentication_of(found.get("authPlugin", ""), found.get("authParams", ""))
    except NoCredentials as error:
        raise AccessRefused(str(error)) from error
    return ClusterAccess(
        found.get("brokerServiceUrl") or _general(found, "pulsar") or _SERVICE_URL,
        found.get("webServiceUrl") or _general(found, "http") or _ADMIN_URL,
        authentication,
        ClientTls(
            _files(found),
            verify=not _truth(found, "tlsAllowInsecureConnection", False),
            verify_host=_truth(found, "tlsEnableHostnameVerification", True),
        ),
        found.get("proxyServiceUrl"),
    )


def _general(found: Mapping[str, str], scheme: str) -> str:
    """Returns the first of ``webServiceUrl`` and ``serviceUrl`` that has the given scheme; otherwise an empty
    string.
    """
    both = (found.get(key, "") for key in ("webServiceUrl", "serviceUrl"))
    return next((url for url in both if url.startswith(scheme)), "")


def _settings(flags: Flags) -> dict[str, str]:
    """Returns the settings that are not empty, from flags, environment variables and ``client.conf``, by the
    keys of this file.
    """
    found = _of_file()
    for variable, key in _ENVIRONMENT.items():
        if os.environ.get(variable):
            found[key] = os.environ[variable]
    for key, value in flags.items():
        if value:
            found[key] = "true" if value is True else value
    if found.get("proxyProtocol", "SNI").upper() != "SNI":
        raise AccessRefused(f"proxyProtocol must be SNI, not {found['proxyProtocol']!r}")
    if found.get("sslFactoryPlugin", _OWN_FACTORY) != _OWN_FACTORY:
        raise AccessRefused("sslFactoryPlugin is not supported: it names a Java class")
    return found


def _of_file() -> dict[str, str]:
    path = os.environ.get(CONFIGURATION)
    if not path:
        return {}
    try:
        read = parse_properties(Path(path).read_text("utf-8"))
    except OSError as error:
        raise AccessRefused(f"{CONFIGURATION}: {path} cannot be read: {error.strerror}") from error
    except (PropertyError, UnicodeDecodeError) as error:
        raise AccessRefused(f"{CONFIGURATION}: {path} is not a property file") from error
    return {each.key: each.value.strip() for each in read if each.value.strip()}


def _truth(found: Mapping[str, str], key: str, default: bool) -> bool:
    text = found.get(key, "").lower()
    if text not in ("", "true", "false"):
        raise AccessRefused(f"{key} must be true or false, not {text!r}")
    return text == "true" if text else default


def _files(found: Mapping[str, str]) -> TlsFiles:
    from magnetar.io.tls import TlsFiles

    if not _truth(found, "useKeyStoreTls", False):
        return TlsFiles(
            found.get("tlsCertificateFilePath", ""),
            found.get("tlsKeyFilePath", ""),
            found.get("tlsTrustCertsFilePath", ""),
        )
    for kind, path in (("tlsKeyStoreType", "tlsKeyStorePath"), ("tlsTrustStoreType", "tlsTrustStorePath")):
        named = found.get(kind, "JKS")
        if found.get(path) and named.upper() != "PKCS12":
            raise AccessRefused(
                f"useKeyStoreTls: {kind}={named} is not supported, because only Java reads such key stores; "
                "convert it to PKCS12 (keytool -importkeystore -deststoretype pkcs12)"
            )
    return TlsFiles(
        key_store=found.get("tlsKeyStorePath", ""),
        key_store_password=found.get("tlsKeyStorePassword", ""),
        trust_store=found.get("tlsTrustStorePath", ""),
        trust_store_password=found.get("tlsTrustStorePassword", ""),
    )


def error_text(error: Exception) -> str:
    """Returns the text that a command prints for an error. Errors of the client are preceded by their class
    name; a missing topic is followed by advice.
    """
    from magnetar.client.exceptions import PulsarException, TopicNotFound

    if not isinstance(error, PulsarException):
        return str(error)
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, TopicNotFound):
        text += "; check its name, or create the topic with pulsar-admin topics create"
    return text
