"""What several command lines share: parsing numbers, flags for access to a broker, and errors."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from magnetar.exit_codes import FAILED

SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Number of bytes in each unit of size."""
_MOST = 1e12
_QUANTITY = re.compile(r"([+-]?\d+)([A-Za-z]?)")


_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)$")


class CommandParser(argparse.ArgumentParser):
    """An argument parser that suggests corrections for unknown options and commands."""

    def parse_known_args(self, *arguments: object, **options: object) -> tuple[Any, list[str]]:
        """Refuses unknown arguments. Each subparser does this itself, so that the error shows the usage of
        the given command.
        """
        parsed, unknown = super().parse_known_args(*arguments, **options)
        if unknown:
            known = (option for option in self._option_string_actions if option.startswith("--"))
            first = unknown[0].partition("=")[0]
            said = "unknown option" if first.startswith("-") else "unexpected argument"
            self.error(f"{said} {first}{advice(first, known) if first.startswith('-') else ''}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Prints the usage and the error, and exits; see :class:`argparse.ArgumentParser`."""
        found = _CHOICE.search(message)
        if found is not None:
            choices = [each.strip("'") for each in found[2].split(", ")]
            close = advice(found[1], choices)
            end = close or f"; use one of {', '.join(choices)}"
            message = f"{message[: found.start()]}invalid choice: '{found[1]}'{end}"
        super().error(message)


def advice(wanted: str, known: Iterable[str]) -> str:
    """Returns the known names that are similar to ``wanted``, as the end of a sentence; an empty string if no
    name is similar.
    """
    # Imported only for mistyped names.
    from difflib import get_close_matches

    close = get_close_matches(wanted, list(known), 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def count(text: str) -> int:
    """Parses a whole number, 0 or more."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0; give a whole number, 0 or more")
    return number


def positive(text: str) -> int:
    """Parses a whole number, 1 or more."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1; give a whole number, 1 or more")
    return number


def number(text: str) -> float:
    """Parses a number from -1e12 to 1e12, with or without a fraction."""
    found = float(text)
    # Comparisons with NaN are false.
    if not abs(found) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text} must be between -{_MOST:g} and {_MOST:g}")
    return found


def quantity(text: str, units: Mapping[str, int]) -> int:
    """Parses a whole number with an optional unit, in lower or upper case; returns the number times the unit.

    :raises ValueError: the text is not a whole number with one of the units
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match[2] and match[2].lower() not in units):
        raise ValueError(text)
    return int(match[1]) * (units[match[2].lower()] if match[2] else 1)


def not_there(command: str) -> str:
    """Returns the error text for a command that this release does not support."""
    return f"{command} is not supported by this release yet"


def say_not_there(program: str, command: str) -> int:
    """Writes the error text for an unsupported command to standard error; returns the exit code."""
    sys.stderr.write(f"{program}: {not_there(command)}\n")
    return FAILED


class Refused(Exception):
    """The command cannot be carried out as given; the error text says why."""


def add_access_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--admin-url", metavar="URL", help="HTTP address of a broker (http://localhost:8080)"
    )
    command.add_argument(
        "--auth-plugin",
        metavar="CLASS",
        help="authentication plugin: a Pulsar class name, or token, basic or tls",
    )
    command.add_argument("--auth-params", metavar="TEXT", help="credentials for the authentication plugin")
    command.add_argument(
        "--tls-trust-cert-path", metavar="FILE", help="PEM file with the trusted certificate authorities"
    )


def add_proxy_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--proxy-url",
        metavar="URL",
        help="SNI proxy for all connections to brokers, pulsar+ssl://HOST:PORT; broker URLs must use TLS and "
        "host names",
    )
    command.add_argument(
        "--proxy-protocol",
        type=str.upper,
        choices=("SNI",),
        help="protocol by which the proxy finds brokers; only SNI, the server name in the TLS handshake, is "
        "supported (SNI)",
    )


def access_values(parsed: argparse.Namespace) -> dict[str, str | None]:
    """Returns the values of the flags for access to a broker, by the keys of ``client.conf``; None: not
    given.
    """
    return {
        "webServiceUrl": parsed.admin_url,
        "authPlugin": parsed.auth_plugin,
        "authParams": parsed.auth_params,
        "tlsTrustCertsFilePath": parsed.tls_trust_cert_path,
    }
