"""Parses command lines: the common options, and commands according to the table ``commands.tsv``."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from magnetar.cli.admin.rendering import FORMS, TEXT
from magnetar.cli.command_lines import SIZES, advice, quantity

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_TRUE = ("true",)
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
    "  --admin-url URL                      HTTP address of a broker (http://localhost:8080)",
    "  --auth-plugin CLASS                  authentication plugin: a Pulsar class, or token, basic or tls",
    "  --auth-params TEXT                   token:…, file:///…, JSON, or tlsCertFile:…,tlsKeyFile:…",
    "  --tls-trust-cert-path FILE           PEM file with the trusted certificate authorities",
    "  --tls-allow-insecure                 accept any certificate",
    "  --tls-enable-hostname-verification   verify host names (on, unless client.conf disables it)",
    "  --tls-provider NAME                  no effect: TLS uses OpenSSL",
    "  --request-timeout SECONDS            timeout of a request (300)",
    "  -o, --output FORM                    output format: text (as Pulsar prints it), json or table",
    "  -v, --version                        print the version",
    "  -h, --help                           show this help, or the help of a group or command",
]


class UsageError(Exception):
    """The command line is malformed; the text says why."""


@dataclass(frozen=True, slots=True)
class Option:
    names: tuple[str, ...]
    arity: int
    required: bool
    type: str
    default: str
    """The default value, written as on a command line; ``-``: no default."""
    purpose: str

    @property
    def key(self) -> str:
        """The option's first name without leading dashes."""
        return self.names[0].lstrip("-")

    def parse(self, text: str) -> object:
        """Converts the text of an argument to the option's type.

        :raises UsageError: the text is not a value of the option's type
        """
        kind = self.type.removesuffix(" comma").removesuffix("(int)")
        try:
            if kind in ("int", "long"):
                return int(text)
            if kind == "double":
                return float(text)
            if kind.startswith("duration"):
                return quantity(text, _UNITS) * (1000 if kind.endswith("ms") else 1)
            if kind.startswith("size"):
                return quantity(text, SIZES)
        except ValueError:
            wanted = kind.partition(">")[0]
            raise UsageError(
                f"Invalid value for option '{self.names[0]}': {text!r} is not a value of type {wanted}"
            ) from None
        if kind.startswith("enum"):
            return self._choice(text, kind)
        parts = text.split(",") if self.type.endswith(" comma") else [text]
        if kind.startswith("list"):
            return [part.strip() for part in parts if part.strip()]
        if kind.startswith("map"):
            return dict(_pair(self.names[0], part) for part in parts)
        return text

    def _choice(self, text: str, kind: str) -> str:
        choices = kind[5:-1].split(",")
        if text not in choices:
            raise UsageError(
                f"Invalid value for option '{self.names[0]}': must be one of {', '.join(choices)}"
            )
        return text

    def initial(self) -> object:
        """Returns the value that the command gets if the option is not given."""
        if self.type == "flag":
            return self.default in _TRUE
        if self.default == "-":
            return None
        if self.type.startswith("duration>ms"):
            return int(self.default)
        return self.parse(self.default)


def _pair(option: str, text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not separator:
        raise UsageError(f"Value for option '{option}' should be in KEY=VALUE format but was {text!r}")
    return key.strip(), value.strip()


@dataclass(slots=True)
class AdminCommand:
    name: str
    """The name of the group and of the command, separated by a space."""
    purpose: str
    operands: list[Option] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)

    def parse(self, words: Sequence[str]) -> dict[str, object]:
        """Parses the words after the command; returns the values by the keys of options and operands.

        :raises UsageError: an option is unknown, or an argument is missing or superfluous
        """
        values = {option.key: option.initial() for option in (*self.options, *self.operands)}
        known = {name: option for option in self.options for name in option.names}
        given: set[str] = set()
        rest: list[str] = []
        waiting = list(words)
        while waiting:
            word = waiting.pop(0)
            name, equals, attached = word.partition("=")
            option = known.get(name)
            if option is None:
                if word.startswith("-") and not re.fullmatch(r"-\d+.*", word):
                    raise UsageError(f"Unknown option: '{word}'{advice(name, known)}")
                rest.append(word)
                continue
            given.add(option.key)
            if option.arity == 0:
                values[option.key] = option.default not in _TRUE
                continue
            if not equals and not waiting:
                raise UsageError(f"Missing required parameter for option '{name}'")
            value = option.parse(attached if equals else waiting.pop(0))
            values[option.key] = _joined(values[option.key] if option.key in given else None, value, option)
        self._take_operands(values, rest)
        missing = [option.names[0] for option in self.options if option.required and option.key not in given]
        if missing:
            raise UsageError(f"Missing required option: '{missing[0]}'")
        return values

    def _take_operands(self, values: dict[str, object], rest: list[str]) -> None:
        wanted = [operand for operand in self.operands if operand.required]
        if len(rest) < len(wanted):
            raise UsageError(f"Missing required parameter: '{wanted[len(rest)].names[0]}'")
        if len(rest) > len(self.operands):
            raise UsageError(f"Unmatched argument: '{rest[len(self.operands)]}'")
        for operand, word in zip(self.operands, rest, strict=False):
            values[operand.key] = operand.parse(word)


def _joined(before: Any, value: Any, option: Option) -> object:
    """Returns the value of an option that is given again: lists and maps are extended, other values are
    replaced.
    """
    if option.type.startswith("list") and before:
        return [*before, *value]
    if option.type.startswith("map") and before:
        return {**before, **value}
    return value


@cache
def commands() -> dict[str, AdminCommand]:
    """Returns all commands by name, in the table's order."""
    found: dict[str, AdminCommand] = {}
    # Read as a file next to this one, because importlib.resources is slow to import.
    for line in (Path(__file__).parent / "commands.tsv").read_text("utf-8").splitlines()[1:]:
        name, names, arity, required, kind, default, purpose = line.split("\t")
        if names == "-":
            found[name] = AdminCommand(name, purpose)
            continue
        operand = names.startswith("<")
        parts = (names.strip("<>"),) if operand else tuple(part.strip() for part in names.split(","))
        option = Option(parts, int(arity), required == "yes", kind, default, purpose)
        (found[name].operands if operand else found[name].options).append(option)
    return found


@dataclass(slots=True)
class Root:
    """The values of the options that all commands share."""

    flags: dict[str, str | bool | None] = field(default_factory=dict)
    """Connection settings, by the keys of ``client.conf``."""
    timeout_seconds: float = 300.0
    form: str = TEXT
    """The output format, one of :data:`magnetar.cli.admin.rendering.FORMS`."""
    version: bool = False
    help: bool = False


def leading_options(root: Root, words: list[str]) -> list[str]:
    """Parses the leading options into ``root``; returns the remaining words.

    :raises UsageError: an option is unknown, or lacks its value
    """
    rest = list(words)
    while rest and rest[0].startswith("-"):
        _take_next(root, rest, NAMES)
    return rest


def trailing_options(root: Root, command: AdminCommand, words: list[str]) -> list[str]:
    """Parses the common options among the words after a command into ``root``; returns the remaining words.
    Options of the command itself take precedence.

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
    """Removes the first word, which is an option, and its value from ``rest``; stores the value in
    ``root``.
    """
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
