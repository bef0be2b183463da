#!/usr/bin/env python3
"""Compares ``magnetar.pulsar`` with the official Python client, and writes the table of its names.

    tools/official_names.py [--record]

Prints each name of the official client that is missing or differs, and fails if there is one without a
reason in ``REASONS``. ``--record`` writes the tables of docs/client/official-names.md. A name is a class,
a function, a member, a parameter with its default, or a member of an enumeration.
"""

from __future__ import annotations

import argparse
import enum
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "client" / "official-names.md"
BEGIN, END = "<!-- official names: begin -->\n", "<!-- official names: end -->\n"
MODULES = ("", ".schema", ".asyncio", ".exceptions", ".tableview", ".functions")
REASONS = {
    "AuthenticationAthenz": "refused: Magnetar does not support Athenz",
    "Authentication.dynamicLibPath": "refused: the client cannot load plugins of the C++ client",
    "Authentication.authParamsString": "refused: the client cannot load plugins of the C++ client",
    "Client.io_threads": "no effect, which is logged: one thread does all input and output",
    "Client.concurrent_lookup_requests": "no effect, which is logged: lookups are not limited",
    "Client.log_conf_file_path": "no effect, as in the official client",
    "Client.use_tls": "no effect, as in the official client: the service URL decides",
    "Client.subscribe.broker_consumer_stats_cache_time_ms": (
        "no effect, which is logged: the client requests no such statistics"
    ),
    "asyncio.Client.subscribe.broker_consumer_stats_cache_time_ms": (
        "no effect, which is logged: the client requests no such statistics"
    ),
    "asyncio.Client.subscribe.batch_receive_policy": (
        "no effect, as in the official client, whose asyncio consumers have no `batch_receive`"
    ),
    "Function": "can be defined and tested; Magnetar's brokers do not run functions",
}
"""What is refused or has no effect, by official name without ``pulsar.``"""
INTERNAL = {
    "EncryptionContext.context": "the constructor is for the client itself",
    "EncryptionKey.key": "the constructor is for the client itself",
    "ServiceInfo.wrap": "it converts an object of the C++ part",
    "ServiceInfo.wrap.service_info": "it converts an object of the C++ part",
    "TableView.table_view": "the constructor is for the client itself",
    "TableView.topic": "the constructor is for the client itself",
    "TableView.subscription": "the constructor is for the client itself",
    "TableView.schema": "the constructor is for the client itself",
    "asyncio.Consumer.consumer": "the constructor is for the client itself",
    "asyncio.Consumer.schema": "the constructor is for the client itself",
    "asyncio.Producer.producer": "the constructor is for the client itself",
    "asyncio.Producer.schema": "the constructor is for the client itself",
    "asyncio.Reader.reader": "the constructor is for the client itself",
    "asyncio.Reader.schema": "the constructor is for the client itself",
}
"""Official names that programs have no use for."""
Names = dict[str, str]


def names(package: str) -> Names:
    """Returns the public names of a package below its own name, with defaults as text."""
    found: Names = {}
    for suffix in MODULES:
        module = importlib.import_module(package + suffix)
        prefix = suffix.removeprefix(".") + "." if suffix in (".schema", ".asyncio") else ""
        for name, value in vars(module).items():
            if not name.startswith("_") and _is_own(value, package):
                for each, default in _names_of(prefix + name, value):
                    # A parameter of the constructor comes before a member with the same name.
                    found.setdefault(each, default)
        if suffix == ".functions":
            for part in ("Function", "Context", "SerDe", "IdentitySerDe", "PickleSerDe"):
                found.setdefault(part, "")
    return found


def _is_own(value: object, package: str) -> bool:
    if isinstance(value, ModuleType):
        return False
    home = getattr(value, "__module__", "") or ""
    return home.split(".")[0] in (package.split(".")[0], "_pulsar") and callable(value)


def _names_of(name: str, value: object) -> Iterator[tuple[str, str]]:
    yield name, ""
    if not isinstance(value, type):
        yield from _parameters(name, value)
        return
    members = getattr(value, "__members__", None)
    if isinstance(value, enum.EnumMeta) or members is not None:
        for member, number in dict(members or {}).items():
            yield f"{name}.{member}", str(int(number))
        return
    if issubclass(value, BaseException) and "__init__" not in vars(value):
        return
    yield from _parameters(name, value.__init__)
    for member in dir(value):
        if member.startswith("_"):
            continue
        found = getattr(value, member)
        yield f"{name}.{member}", ""
        if callable(found) and not isinstance(found, type):
            yield from _parameters(f"{name}.{member}", found)


def _parameters(name: str, function: object) -> Iterator[tuple[str, str]]:
    if not callable(function):
        return
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # A function of the C++ part.
        return
    for parameter in signature.parameters.values():
        if parameter.name == "self" or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        missing = parameter.default is parameter.empty
        yield f"{name}.{parameter.name}", "required" if missing else _text(parameter.default)


def _text(value: object) -> str:
    """Returns a default as text that is the same for both packages."""
    number = getattr(value, "value", value)
    if hasattr(type(value), "__members__"):
        return f"{getattr(value, 'name', '')} ({int(number)})"
    return str(value)


def differences(official: Names, own: Names) -> dict[str, str]:
    """Returns the official names that are missing or differ, with what is wrong."""
    wrong: dict[str, str] = {}
    for name, default in official.items():
        if name not in own:
            wrong[name] = "missing"
        elif own[name] != default:
            wrong[name] = f"{own[name] or 'no default'} instead of {default}"
    return wrong


def unexplained(official: Names, own: Names) -> dict[str, str]:
    """Returns those of :func:`differences` without a reason."""
    return {
        name: wrong
        for name, wrong in differences(official, own).items()
        if name not in REASONS and name not in INTERNAL
    }


def table(official: Names) -> str:
    """Returns the tables of the page: a row for each class and function, and one for each reason."""
    members: dict[str, list[str]] = {}
    for name in official:
        module, _, rest = name.partition(".")
        inside = module in ("asyncio", "schema") and rest
        parts = (rest if inside else name).split(".")
        top = f"{module}.{parts[0]}" if inside else parts[0]
        known = members.setdefault(top, [])
        if len(parts) > 1 and parts[1] not in known and name not in INTERNAL:
            known.append(parts[1])
    lines = ["| name in `pulsar` | members and arguments |", "| --- | --- |"]
    errors = [f"`{top}`" for top in sorted(members) if not members[top]]
    lines.append(f"| all errors | {', '.join(errors)} |")
    for top in sorted(top for top in members if members[top]):
        lines.append(f"| `{top}` | {', '.join(f'`{member}`' for member in members[top])} |")
    lines += ["", "| name | what differs |", "| --- | --- |"]
    lines += [f"| `{name}` | {reason} |" for name, reason in sorted(REASONS.items())]
    return "\n".join(lines) + "\n"


def recorded() -> str:
    """Returns the tables that the page has."""
    return PAGE.read_text().partition(BEGIN)[2].partition(END)[0]


def main() -> int:
    parser = argparse.ArgumentParser(description="Compares magnetar.pulsar with the official client.")
    parser.add_argument("--record", action="store_true", help="write the tables of the page")
    arguments = parser.parse_args()
    official = names("pulsar")
    if arguments.record:
        text = PAGE.read_text()
        before, _, rest = text.partition(BEGIN)
        PAGE.write_text(before + BEGIN + table(official) + END + rest.partition(END)[2])
    wrong = unexplained(official, names("magnetar.pulsar"))
    for name, what in wrong.items():
        print(f"{name}: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
