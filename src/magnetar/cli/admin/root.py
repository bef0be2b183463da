"""The options of ``pulsar-admin`` in front of its commands."""

from __future__ import annotations

from dataclasses import dataclass, field

from magnetar.cli.admin.arguments import UsageError

_HELP = ("-h", "--help")
_VERSION = ("-v", "--version")
_TIMEOUT = "--request-timeout"
_PROVIDER = "--tls-provider"
_VALUES = {
    "--admin-url": "webServiceUrl",
    "--auth-plugin": "authPlugin",
    "--auth-params": "authParams",
    "--tls-trust-cert-path": "tlsTrustCertsFilePath",
    _TIMEOUT: "",
    # Pulsar's choice between libraries of Java; here TLS is OpenSSL's.
    _PROVIDER: "",
}
_FLAGS = {
    "--tls-allow-insecure": "tlsAllowInsecureConnection",
    "--tls-enable-hostname-verification": "tlsEnableHostnameVerification",
}
USAGE = [
    "  --admin-url URL                      where the admin interface is (http://localhost:8080)",
    "  --auth-plugin CLASS                  how to prove who asks: a class of Pulsar's, or token, basic, tls",
    "  --auth-params TEXT                   token:…, file:///…, JSON or tlsCertFile:…,tlsKeyFile:…",
    "  --tls-trust-cert-path FILE           who may have issued the broker's certificate",
    "  --tls-allow-insecure                 take any certificate",
    "  --tls-enable-hostname-verification   on unless client.conf says no",
    "  --tls-provider NAME                  changes nothing: TLS is OpenSSL's",
    "  --request-timeout SECONDS            until an answer must be there (300)",
    "  -v, --version                        print the version",
    "Groups:",
]


@dataclass(slots=True)
class Root:
    """What stands in front of a command."""

    flags: dict[str, str | bool | None] = field(default_factory=dict)
    """By the keys of ``client.conf``."""
    timeout_seconds: float = 300.0
    version: bool = False


def root_options(words: list[str]) -> tuple[Root, list[str]]:
    """The options, and what follows them.

    :raises UsageError: one is unknown, or lacks its value
    """
    root, rest = Root(), list(words)
    while rest and rest[0].startswith("-") and rest[0] not in _HELP:
        name, equals, attached = rest.pop(0).partition("=")
        if name in _VERSION:
            root.version = True
        elif name in _FLAGS and not equals:
            root.flags[_FLAGS[name]] = True
        elif name not in _VALUES:
            raise UsageError(f"Unknown option: '{name}'")
        elif not equals and not rest:
            raise UsageError(f"Missing required parameter for option '{name}'")
        else:
            _take(root, name, attached if equals else rest.pop(0))
    return root, rest


def _take(root: Root, name: str, value: str) -> None:
    if name == _TIMEOUT:
        if not (value.isascii() and value.isdigit() and int(value) > 0):
            raise UsageError(f"Invalid value for option '{name}': {value!r} is no number of seconds")
        root.timeout_seconds = float(value)
    elif _VALUES[name]:
        root.flags[_VALUES[name]] = value
