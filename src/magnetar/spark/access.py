"""Options for credentials, TLS and tiered storage, and options that are passed to the client. Spark prints
options in plans, in its UI and in its event log, and masks only options whose names contain ``token``,
``password`` or ``secret``. This module refuses secrets in other options.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from magnetar.client.enums import CompressionType
from magnetar.io.tls import ClientTls, TlsFiles
from magnetar.offload.interface import OffloadMisconfigured
from magnetar.offload.settings import AWS_S3, DRIVER, checked_driver, s3_settings
from magnetar.security.client_authentication.authentication import Authentication, NoCredentials
from magnetar.security.client_authentication.plugins import authentication_of
from magnetar.spark.errors import InvalidOption

__all__ = [
    "ACCESS",
    "CLIENT",
    "PRODUCER",
    "READER",
    "QueryAccess",
    "access_of",
    "is_of_access",
    "passed_through",
    "without_secrets",
]
ACCESS = "access"
_MASKED = re.compile(r"(?i)secret|password|token")
_HELD = re.compile(r'(?i)^(file:|tlsCertFile:)|"tlsCertFile"|^\{(?!.*"data:)')
"""Matches option values that are not secret themselves: names of files that contain the secret, and
parameters without a secret.
"""
_NAMES = {
    "auth.plugin": "plugin",
    "auth.params": "params",
    "tls.trust.certs": "trust",
    "tls.certificate": "certificate",
    "tls.key": "key",
    "tls.hostname.verification": "verify_host",
    "tls.allow.insecure": "insecure",
    # The names of the JVM connector.
    "authpluginclassname": "plugin",
    "authparams": "params",
    "tlstrustcertsfilepath": "trust",
    "tlscertificatefilepath": "certificate",
    "tlskeyfilepath": "key",
    "tlshostnameverificationenable": "verify_host",
    "tlsallowinsecureconnection": "insecure",
}
CLIENT, PRODUCER, READER = "client", "producer", "reader"
_Parse = Callable[[str], object]
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class QueryAccess:
    """The credentials and TLS settings of a query."""

    authentication: Authentication | None = None
    tls: ClientTls = field(default_factory=ClientTls)

    def client_options(self) -> dict[str, object]:
        """Returns keyword arguments of ``magnetar.client.blocking.Client``."""
        return {
            "authentication": self.authentication,
            "tls_files": self.tls.files,
            "tls_allow_insecure_connection": not self.tls.verify,
            "tls_validate_hostname": self.tls.verify_host,
        }


_SECRET_NAMES = ("authparams", "credentialid", "credentialsecret")
"""Options whose names end with one of these strings are masked; names are compared in lower case without
punctuation.
"""
_OFFLOAD = {
    "offload.driver": DRIVER,
    "offload.bucket": "s3ManagedLedgerOffloadBucket",
    "offload.region": "s3ManagedLedgerOffloadRegion",
    "offload.endpoint": "s3ManagedLedgerOffloadServiceEndpoint",
    "offload.credentialid": "s3ManagedLedgerOffloadCredentialId",
    "offload.credentialsecret": "s3ManagedLedgerOffloadCredentialSecret",
    "offload.uri": "fileSystemURI",
}
"""Maps each option for tiered storage to the broker setting with the same meaning."""


def is_of_offload(name: str, text: str, into: dict[str, str]) -> bool:
    """If an option is for tiered storage, adds its value to ``into``, under the name of the broker setting.

    :param name: the name of the option
    :param text: the value of the option
    :returns: whether the option is for tiered storage
    """
    setting = _OFFLOAD.get(name.lower())
    if setting is None:
        return False
    into[setting] = text.strip()
    return True


def offload_of(given: Mapping[str, str]) -> Mapping[str, str]:
    """Checks the options for tiered storage, and returns them by the names of the broker's settings.

    :raises InvalidOption: an option is missing or invalid; the error text has no secrets
    """
    if not given:
        return given
    if DRIVER not in given:
        raise InvalidOption("the options 'offload.*' require 'offload.driver' to be aws-s3 or filesystem")
    try:
        if checked_driver(given[DRIVER]) == AWS_S3:
            s3_settings(given)
        elif not given.get("fileSystemURI"):
            raise InvalidOption("'offload.driver=filesystem' requires 'offload.uri', such as file:///archive")
    except OffloadMisconfigured as error:
        reason = str(error)
        for option, setting in _OFFLOAD.items():
            reason = reason.replace(setting, option)
        raise InvalidOption(f"the options 'offload.*' cannot be used: {reason}") from None
    return given


def without_secrets(given: Mapping[str, object]) -> dict[str, object]:
    """Returns a configuration for display, with credentials masked at any depth."""
    shown: dict[str, object] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            shown[name] = without_secrets(value)
        elif value and re.sub("[._-]", "", name).lower().endswith(_SECRET_NAMES):
            shown[name] = "***"
        else:
            shown[name] = value
    return shown


def is_of_access(name: str, text: str, into: dict[str, tuple[str, str]]) -> bool:
    """If an option is for credentials or TLS, adds its name and value to ``into``; accepts names with the
    prefix ``pulsar.client.``, too.

    :param name: the name of the option
    :param text: the value of the option
    :returns: whether the option is for credentials or TLS
    :raises InvalidOption: the option is given twice, under different names
    """
    kind = _NAMES.get(name.lower().removeprefix("pulsar.client."))
    if kind is None:
        return False
    if kind in into:
        raise InvalidOption(f"the options {into[kind][0]!r} and {name!r} cannot be used together")
    into[kind] = (name, text.strip())
    return True


def access_of(given: Mapping[str, tuple[str, str]]) -> QueryAccess:
    """Returns the credentials and TLS settings in options.

    :param given: name and value of each option, as :func:`is_of_access` collects them
    :raises InvalidOption: an option cannot be used; the error text contains no secrets
    """
    plugin, params = _text(given, "plugin"), _text(given, "params")
    if params and not _MASKED.search(params) and not _HELD.search(params):
        raise InvalidOption(
            f"{given['params'][0]!r} contains a secret that Spark would print; use token:… or file:…"
        )
    try:
        authentication = authentication_of(plugin, params)
    except NoCredentials as error:
        raise InvalidOption(f"{given.get('params', given.get('plugin', ('', '')))[0]!r}: {error}") from None
    files = TlsFiles(_text(given, "certificate"), _text(given, "key"), _text(given, "trust"))
    if bool(files.certificate) != bool(files.key):
        raise InvalidOption("'tls.certificate' and 'tls.key' must be set together")
    return QueryAccess(
        authentication,
        ClientTls(
            files,
            verify=not _truth(given, "insecure", False),
            verify_host=_truth(given, "verify_host", True),
        ),
    )


def _text(given: Mapping[str, tuple[str, str]], kind: str) -> str:
    return given[kind][1] if kind in given else ""


def _truth(given: Mapping[str, tuple[str, str]], kind: str, default: bool) -> bool:
    if kind not in given:
        return default
    name, text = given[kind]
    if text.lower() not in ("true", "false"):
        raise InvalidOption(f"{name!r} must be true or false, not {text!r}")
    return text.lower() == "true"


def _positive(text: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError("use a whole number above 0")
    return int(text)


def _seconds(text: str) -> float:
    return _positive(text) / 1000


def _passed_truth(text: str) -> bool:
    return _one_of({"true": True, "false": False}, text.lower())


def _compression(text: str) -> CompressionType:
    return _one_of({each.name.upper(): each for each in CompressionType}, text.upper())


def _one_of(values: Mapping[str, _Value], text: str) -> _Value:
    if text not in values:
        raise ValueError(f"use one of {', '.join(values)}")
    return values[text]


_PASSED_NAMES: dict[str, dict[str, tuple[str, _Parse]]] = {
    CLIENT: {
        "operationtimeoutms": ("operation_timeout_seconds", _seconds),
        "connectiontimeoutms": ("connection_timeout_ms", _positive),
        "connectionsperbroker": ("connections_per_broker", _positive),
        "keepaliveintervalseconds": ("keep_alive_interval_seconds", _positive),
        "listenername": ("listener_name", str),
    },
    PRODUCER: {
        "compressiontype": ("compression_type", _compression),
        "sendtimeoutms": ("send_timeout_millis", _positive),
        "batchingenabled": ("batching_enabled", _passed_truth),
        "batchingmaxmessages": ("batching_max_messages", _positive),
        "batchingmaxbytes": ("batching_max_allowed_size_in_bytes", _positive),
    },
    READER: {
        "receiverqueuesize": ("receiver_queue_size", _positive),
        "readername": ("reader_name", str),
        "subscriptionroleprefix": ("subscription_role_prefix", str),
    },
}


def passed_through(name: str, text: str, into: dict[str, Any]) -> bool:
    """Adds an option with the prefix ``pulsar.client.``, ``pulsar.producer.`` or ``pulsar.reader.`` to
    ``into[CLIENT]``, ``into[PRODUCER]`` or ``into[READER]``.

    The names are those of the Java client's configuration. Options that this client does not support are
    refused, not ignored.

    :returns: whether the option has one of these prefixes
    :raises InvalidOption: the option has one of these prefixes, but it is unknown or its value is not valid
    """
    for kind, known in _PASSED_NAMES.items():
        prefix = f"pulsar.{kind}."
        if not name.lower().startswith(prefix):
            continue
        found = known.get(name.lower().removeprefix(prefix))
        if found is None:
            raise InvalidOption(
                f"{name!r} is not supported; the supported options with the prefix {prefix} are "
                + ", ".join(sorted(known))
            )
        argument, parse = found
        try:
            into[kind][argument] = parse(text)
        except ValueError as error:
            raise InvalidOption(f"{name!r} cannot be {text!r}; {error}") from error
        return True
    return False
