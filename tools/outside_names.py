#!/usr/bin/env python3
"""Lists the names and defaults that users and their programs rely on, one per line.

    tools/outside_names.py [--record]

Settings, commands with their options and exit codes, REST paths and JSON fields, metrics, names of
OpenTelemetry, environment variables, log events with their fields, options of the Spark source, public Python
names, and names on disk. ``--record`` writes the list to ``tests/unit/tools/outside_names.txt``. A test fails
when a recorded line is missing. Lines may be added; a line that changes or is removed needs a line in
CHANGELOG.md and a new record.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from google.protobuf.descriptor import Descriptor

from magnetar.broker.stats.figure_table import KINDS
from magnetar.cli.client.options import parser as client_parser
from magnetar.cli.magnetar import _parser as magnetar_parser
from magnetar.cli.perf.options import parser as perf_parser
from magnetar.config.table import (
    cluster_settings_table,
    proxy_settings_table,
    settings_table,
    websocket_settings_table,
)
from magnetar.exit_codes import EXIT_CODES
from magnetar.http.endpoints.table import WHOLE
from magnetar.spark import options
from magnetar.telemetry import instruments

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "magnetar"
RECORD = ROOT / "tests" / "unit" / "tools" / "outside_names.txt"
_STORED = (
    "magnetar.managed_ledger.records_pb2",
    "magnetar.broker.schemas.records_pb2",
    "magnetar.broker.transactions.records_pb2",
    "magnetar.broker.replication.subscriptions.markers_pb2",
    "magnetar.ledger.bookkeeper.records_pb2",
)
_PUBLIC = (
    "magnetar.client",
    "magnetar.client.aio",
    "magnetar.client.schemas",
    "magnetar.testing",
    "magnetar.spark",
)
_TELEMETRY = re.compile(r"(pulsar|messaging)(\.[a-z_]+)+")
_VARIABLE = re.compile(r"(MAGNETAR|PULSAR)_[A-Z][A-Z_]+")


def names() -> list[str]:
    """Returns all lines, sorted."""
    found = [
        *_settings(),
        *_commands(),
        *_exit_codes(),
        *_http(),
        *_metrics(),
        *_telemetry(),
        *_of_source(),
        *_python(),
        *_spark(),
        *_stored(),
    ]
    return sorted(set(found))


def _settings() -> Iterator[str]:
    tables = {
        "broker": settings_table(),
        "cluster": cluster_settings_table(),
        "proxy": proxy_settings_table(),
        "websocket": websocket_settings_table(),
    }
    for kind, table in tables.items():
        for setting in table.values():
            yield f"setting {kind} {setting.name}={setting.default!r} {setting.kind.value}"


def _commands() -> Iterator[str]:
    for line in (SOURCE / "cli" / "admin" / "commands.tsv").read_text().splitlines()[1:]:
        command, option, _arity, _required, kind, default, _purpose = line.split("\t")
        yield f"command pulsar-admin {command} {option} {kind} {default}"
    for name, parser in (
        ("magnetar", magnetar_parser()),
        ("pulsar-client", client_parser()),
        ("pulsar-perf", perf_parser()),
    ):
        yield from _of_parser(name, parser)


def _of_parser(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, part in action.choices.items():
                yield from _of_parser(f"{command} {name}", part)
        else:
            options = ", ".join(action.option_strings) or action.dest
            default = None if str(action.default).startswith("/") else action.default
            yield f"command {command} {options} {default!r}"


def _exit_codes() -> Iterator[str]:
    for command, codes in EXIT_CODES.items():
        for code, meaning in codes.items():
            yield f"exit code {command} {code}: {meaning}"


def _http() -> Iterator[str]:
    for endpoint in WHOLE:
        for path in (endpoint.path, *endpoint.aliases):
            yield f"REST {endpoint.method} {path}"
    for line in (SOURCE / "http" / "openapi" / "shapes.tsv").read_text().splitlines():
        shape, field, kind, _meaning = line.split("\t")
        yield f"JSON {shape}.{field} {kind}"


def _metrics() -> Iterator[str]:
    for line in (SOURCE / "http" / "metrics" / "help.tsv").read_text().splitlines():
        yield f"metric {line.split(chr(9))[0]}"


def _telemetry() -> Iterator[str]:
    """Yields instruments with kind and unit, and the names of attributes."""
    for kind in KINDS:
        for each in instruments.instruments_of(kind):
            yield f"OTLP {each.name} {each.kind.name} {each.unit}"
            yield from (f"OTLP {attribute}" for attribute in each.attributes)
    for value in vars(instruments).values():
        if isinstance(value, instruments.Instrument):
            yield f"OTLP {value.name} {value.kind.name} {value.unit}"
    for node in ast.walk(ast.parse((SOURCE / "telemetry" / "instruments.py").read_text())):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and _TELEMETRY.fullmatch(text):
            yield f"OTLP {text}"


def _of_source() -> Iterator[str]:
    """Yields names that are only in the source text: environment variables, log events, and SQLite tables."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.stem.endswith("_pb2"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if _VARIABLE.fullmatch(node.value):
                    yield f"environment {node.value}"
                elif node.value.startswith("CREATE "):
                    yield f"SQLite {' '.join(node.value.split())}"
            elif isinstance(node, ast.Call):
                yield from _of_log(node)


def _of_log(call: ast.Call) -> Iterator[str]:
    """Yields the event of a logger call, with its fields."""
    if not (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("debug", "info", "warning", "error", "exception", "critical")
        and call.args
        and isinstance(call.args[0], ast.Constant)
        and isinstance(call.args[0].value, str)
    ):
        return
    fields: list[str] = []
    for keyword in call.keywords:
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict):
            keys = [key for key in keyword.value.keys if isinstance(key, ast.Constant)]
            fields += [str(key.value) for key in keys]
    yield f"log {call.func.attr} {call.args[0].value!r} {' '.join(fields)}".rstrip()


def _python() -> Iterator[str]:
    for name in _PUBLIC:
        module = import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            yield f"Python {name}.{public}"
            if inspect.isclass(value):
                yield f"Python {name}.{public}{_parameters(value.__init__)}"
                members = {each: getattr(value, each) for each in dir(value) if not each.startswith("_")}
                for member, found in members.items():
                    yield f"Python {name}.{public}.{member}{_parameters(found)}"
            elif inspect.isfunction(value):
                yield f"Python {name}.{public}{_parameters(value)}"


def _spark() -> Iterator[str]:
    for option in options._KNOWN:
        yield f"Spark option {option}"


def _parameters(value: object) -> str:
    if not inspect.isfunction(value):
        return ""
    return f"({', '.join(inspect.signature(value).parameters)})"


def _stored() -> Iterator[str]:
    for name in _STORED:
        module = import_module(name)
        for message in module.DESCRIPTOR.message_types_by_name.values():
            yield from _of_message(message)


def _of_message(message: Descriptor) -> Iterator[str]:
    for field in message.fields:
        yield f"record {message.full_name}.{field.name}={field.number} {field.type}"
    for nested in message.nested_types:
        yield from _of_message(nested)


def main() -> int:
    parser = argparse.ArgumentParser(description="Lists names and defaults that users rely on.")
    parser.add_argument("--record", action="store_true", help=f"write the list to {RECORD.relative_to(ROOT)}")
    text = "\n".join(names()) + "\n"
    if parser.parse_args().record:
        RECORD.write_text(text)
    else:
        sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
