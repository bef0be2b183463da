"""What command lines share: numbers, flags for access to a broker, and refusals."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from magnetar.exit_codes import FAILED

SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
"""Units of bytes."""
_MOST = 1e12
_QUANTITY = re.compile(r"([+-]?\d+)([A-Za-z]?)")


_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)$")


class CommandParser(argparse.ArgumentParser):
    """A parser that suggests corrections for unknown options and commands."""

    def parse_known_args(self, *arguments: object, **options: object) -> tuple[Any, list[str]]:
        """Refuses unknown arguments here, with the usage of the command that was given."""
        parsed, unknown = super().parse_known_args(*arguments, **options)
        if unknown:
            known = (option for option in self._option_string_actions if option.startswith("--"))
            first = unknown[0].partition("=")[0]
            said = "unknown option" if first.startswith("-") else "unexpected argument"
            self.error(f"{said} {first}{advice(first, known) if first.startswith('-') else ''}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """See :class:`argparse.ArgumentParser`."""
        found = _CHOICE.search(message)
        if found is not None:
            choices = [each.strip("'") for each in found[2].split(", ")]
            close = advice(found[1], choices)
            end = close or f"; use one of {', '.join(choices)}"
            message = f"{message[: found.start()]}invalid choice: '{found[1]}'{end}"
        super().error(message)


def advice(wanted: str, known: Iterable[str]) -> str:
    """Returns similar names, as the end of a sentence; empty: there are none."""
    # Imported only for mistyped names.
    from difflib import get_close_matches

    close = get_close_matches(wanted, list(known), 3)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def count(text: str) -> int:
    """Parses a whole number from 0."""
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def positive(text: str) -> int:
    """Parses a whole number from 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return number


def number(text: str) -> float:
    """Parses a number from -1e12 to 1e12, with or without a fraction."""
    found = float(text)
    # Comparisons with NaN are false.
    if not abs(found) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text} must be between -{_MOST:g} and {_MOST:g}")
    return found


def quantity(text: str, units: Mapping[str, int]) -> int:
    """Parses a whole number with an optional unit, in lower or upper case.

    :raises ValueError: the text has another form
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None or (match[2] and match[2].lower() not in units):
        raise ValueError(text)
    return int(match[1]) * (units[match[2].lower()] if match[2] else 1)


def not_there(command: str) -> str:
    """Returns the sentence about a command."""
    return f"{command} is not supported by this release yet"


def say_not_there(program: str, command: str) -> int:
    """Writes one line to standard error; returns the exit code."""
    sys.stderr.write(f"{program}: {not_there(command)}\n")
    return FAILED


class Refused(Exception):
    """The command line or its message cannot be processed; the text says why."""


def add_access_flags(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--admin-url", metavar="URL", help="HTTP address of any broker (http://localhost:8080)"
    )
    command.add_argument(
        "--auth-plugin", metavar="CLASS", help="authentication plugin of Pulsar, or token, basic, tls"
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
        help="how the proxy finds brokers: by the server name of the TLS handshake (SNI)",
    )


def access_values(parsed: argparse.Namespace) -> dict[str, str | None]:
    """Returns the values of the flags by the names of ``client.conf``."""
    return {
        "webServiceUrl": parsed.admin_url,
        "authPlugin": parsed.auth_plugin,
        "authParams": parsed.auth_params,
        "tlsTrustCertsFilePath": parsed.tls_trust_cert_path,
    }
