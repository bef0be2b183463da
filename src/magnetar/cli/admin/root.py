"""The common options of ``pulsar-admin``, which may stand before or after the command."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from magnetar.cli.admin.arguments import AdminCommand, UsageError
from magnetar.cli.admin.rendering import FORMS, TEXT

_HELP = ("-h", "--help")
_VERSION = ("-v", "--version")
OUTPUT = ("-o", "--output")
_TIMEOUT = "--request-timeout"
_PROVIDER = "--tls-provider"
_VALUES = {
    "--admin-url": "webServiceUrl",
    "--auth-plugin": "authPlugin",
    "--auth-params": "authParams",
    "--tls-trust-cert-path": "tlsTrustCertsFilePath",
    _TIMEOUT: "",
    # Selects a TLS library of Java; this tool always uses OpenSSL.
    _PROVIDER: "",
    **dict.fromkeys(OUTPUT, ""),
}
_FLAGS = {
    "--tls-allow-insecure": "tlsAllowInsecureConnection",
    "--tls-enable-hostname-verification": "tlsEnableHostnameVerification",
}
WITH_VALUES = frozenset(_VALUES)
NAMES = frozenset((*_HELP, *_VERSION, *_VALUES, *_FLAGS))
USAGE = [
    "  --admin-url URL                      address of the admin interface (http://localhost:8080)",
    "  --auth-plugin CLASS                  authentication plugin: a class of Pulsar, or token, basic, tls",
    "  --auth-params TEXT                   token:…, file:///…, JSON, or tlsCertFile:…,tlsKeyFile:…",
    "  --tls-trust-cert-path FILE           PEM file with the trusted certificate authorities",
    "  --tls-allow-insecure                 accept any certificate",
    "  --tls-enable-hostname-verification   verify host names; on unless client.conf switches it off",
    "  --tls-provider NAME                  no effect: TLS uses OpenSSL",
    "  --request-timeout SECONDS            timeout of a request (300)",
    "  -o, --output FORM                    output format: text (as Pulsar prints it), json or table",
    "  -v, --version                        print the version",
    "  -h, --help                           show this help, that of a group or of a command",
]


@dataclass(slots=True)
class Root:
    """The values of the common options."""

    flags: dict[str, str | bool | None] = field(default_factory=dict)
    """Flags by the keys of ``client.conf``."""
    timeout_seconds: float = 300.0
    form: str = TEXT
    """One of :data:`magnetar.cli.admin.rendering.FORMS`."""
    version: bool = False
    help: bool = False


def leading_options(root: Root, words: list[str]) -> list[str]:
    """Takes leading options into ``root``; returns the other words.

    :raises UsageError: an option is unknown, or lacks its value
    """
    rest = list(words)
    while rest and rest[0].startswith("-"):
        _take_next(root, rest, NAMES)
    return rest


def trailing_options(root: Root, command: AdminCommand, words: list[str]) -> list[str]:
    """Takes common options between the words of a command; returns the others. Options of the command itself
    take precedence.

    :raises UsageError: an option lacks its value
    """
    own = {name: option for option in command.options for name in option.names}
    shared = NAMES - own.keys()
    rest, kept = list(words), list[str]()
    while rest:
        name, equals, _ = rest[0].partition("=")
        option = own.get(name)
        if option is not None:
            kept.append(rest.pop(0))
            if option.arity and not equals and rest:
                kept.append(rest.pop(0))
        elif name in shared:
            _take_next(root, rest, shared)
        else:
            kept.append(rest.pop(0))
    return kept


def _take_next(root: Root, rest: list[str], known: Collection[str]) -> None:
    """Takes an option and its value."""
    name, equals, attached = rest.pop(0).partition("=")
    if name in _HELP and name in known:
        root.help = True
    elif name in _VERSION and name in known:
        root.version = True
    elif name in _FLAGS and not equals:
        root.flags[_FLAGS[name]] = True
    elif name not in _VALUES:
        raise UsageError(f"Unknown option: '{name}'")
    elif not equals and not rest:
        raise UsageError(f"Missing required parameter for option '{name}'")
    else:
        _take(root, name, attached if equals else rest.pop(0))


def _take(root: Root, name: str, value: str) -> None:
    if name == _TIMEOUT:
        if not (value.isascii() and value.isdigit() and len(value) < 10 and int(value) > 0):
            raise UsageError(f"Invalid value for option '{name}': {value!r} is not a number of seconds")
        root.timeout_seconds = float(value)
    elif name in OUTPUT:
        if value not in FORMS:
            raise UsageError(f"Invalid value for option '{name}': must be one of {', '.join(FORMS)}")
        root.form = value
    elif _VALUES[name]:
        root.flags[_VALUES[name]] = value
