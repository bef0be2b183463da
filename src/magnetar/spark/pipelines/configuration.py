"""Configuration files of pipelines, TOML or JSON: sections become frozen dataclasses.

All problems of a file are reported together.

The fields of a section can be strings, numbers, booleans, paths, choices (``Literal``), lists of strings
(``tuple[str, ...]``) and tables of strings (``dict[str, str]``); fields with a default are optional.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import dedent, wrap
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

__all__ = [
    "CatalogLocation",
    "Cluster",
    "ConfigurationRefused",
    "Document",
    "Location",
    "PipelineError",
    "SparkSection",
    "check_expression",
    "init_value",
    "load_document",
    "template",
]
if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")


class Location(str):
    """An absolute path, or ``s3://BUCKET/PATH``."""

    __slots__ = ()


class CatalogLocation(str):
    """An absolute path, or the URL of a REST catalog."""

    __slots__ = ()


_EXAMPLE = "example"


def init_value(value: str | list[str]) -> Mapping[str, str | list[str]]:
    """Returns the dataclass metadata of a field that has no default.

    :param value: the example value that ``magnetar pipeline init`` prints
    """
    return {_EXAMPLE: value}


@dataclass(frozen=True)
class Cluster:
    """The section for the cluster that has the topics."""

    service_url: str = "pulsar://localhost:6650"
    """The URL for clients: pulsar:// or pulsar+ssl://."""
    admin_url: str = "http://localhost:8080"
    """The URL of the admin interface: http:// or https://."""
    auth_plugin: str = ""
    """Java class name of an authentication plugin, or a short form such as token; empty: no
    authentication.
    """
    auth_params: str = field(default="", repr=False)
    """Parameters of the plugin, such as file:///path/to/token. They are never in a report."""
    tls_trust_certs: str = ""
    """PEM file, at a path that all Spark processes can read; empty: the issuers that the system trusts."""
    tls_hostname_verification: bool = True

    def options(self) -> dict[str, str]:
        """Returns the options for ``format("pulsar")``."""
        more = {
            "auth.plugin": self.auth_plugin,
            "auth.params": self.auth_params,
            "tls.trust.certs": self.tls_trust_certs,
            "tls.hostname.verification": "" if self.tls_hostname_verification else "false",
        }
        given = {name: text for name, text in more.items() if text}
        return {"service.url": self.service_url, "admin.url": self.admin_url, **given}


@dataclass(frozen=True)
class SparkSection:
    """The section for the Spark session."""

    master: str = "local[*]"
    """``local[N]``, ``spark://host:port``, or ``sc://host:port`` for Spark Connect."""
    conf: dict[str, str] = field(default_factory=dict)
    """Spark settings by name."""
    log_level: Literal["OFF", "ERROR", "WARN", "INFO", "DEBUG"] = "OFF"
    """The log level of Spark's driver, unless ``conf`` sets it. Reports contain the details of errors."""


class Document:
    """A configuration file; each section is read as a dataclass."""

    def __init__(self, values: Mapping[str, object], directory: Path) -> None:
        """:param directory: the directory that relative paths start from"""
        self._values = values
        self._directory = directory
        self._taken: set[str] = set()
        self._problems: list[str] = []

    def section(self, name: str, kind: type[T]) -> T | None:
        """Returns a section as an object of ``kind``; None if the section has errors, which :meth:`check`
        reports.
        """
        self._taken.add(name)
        value = self._values.get(name, {})
        if not isinstance(value, Mapping):
            self._problems.append(f"{name} must be a section, not {value!r}")
            return None
        before = len(self._problems)
        given = self._fields(name, value, kind)
        if len(self._problems) > before:
            return None
        try:
            return kind(**given)
        except ValueError as error:
            self._problems.append(f"{name}: {error}")
            return None

    def check(self) -> None:
        """Checks that the whole file is valid; must be called after all sections were read.

        :raises ConfigurationRefused: the file has errors or unknown sections; the error text names all of
            them
        """
        unknown = [name for name in self._values if name not in self._taken]
        for name in unknown:
            self._problems.append(f"{name}: unknown section; use {', '.join(sorted(self._taken))}")
        if self._problems:
            raise ConfigurationRefused(self._problems)

    def _fields(self, section: str, values: Mapping[str, object], kind: type[object]) -> dict[str, object]:
        assert is_dataclass(kind)
        hints = get_type_hints(kind)
        known = {each.name: each for each in fields(kind)}
        # What a file for an earlier release may have.
        renamed: Mapping[str, str] = getattr(kind, "renamed", {})
        for name, value in values.items():
            if name in renamed:
                now = renamed[name].format(value)
                self._problems.append(f"{section}.{name}: this key does not exist any more; write {now}")
            elif name not in known:
                self._problems.append(f"{section}.{name}: unknown key; use {', '.join(known)}")
        given = {}
        for name, each in known.items():
            if name not in values:
                if each.default is MISSING and each.default_factory is MISSING:
                    self._problems.append(f"{section}.{name} is missing")
                continue
            try:
                given[name] = self._value(hints[name], values[name])
            except ValueError as error:
                self._problems.append(f"{section}.{name}: {error}")
        return given

    def _value(self, hint: Any, value: Any) -> object:
        """Converts a value to the type of its field.

        :raises ValueError: the value has another type
        """
        if get_origin(hint) is UnionType:
            hint = next(each for each in get_args(hint) if each is not NoneType)
        if get_origin(hint) is Literal:
            if value not in get_args(hint):
                raise ValueError(f"must be one of {', '.join(get_args(hint))}, not {value!r}")
            return value
        if get_origin(hint) is tuple:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise ValueError(f"must be a list of strings, not {value!r}")
            return tuple(value)
        if get_origin(hint) is dict:
            if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value.values()):
                raise ValueError(f"must be a table of strings, not {value!r}")
            return dict(value)
        if hint is Path:
            if not isinstance(value, str) or not value or "://" in value:
                raise ValueError(f"must be a directory that all processes of Spark can access, not {value!r}")
            return self._directory / Path(value).expanduser()
        if hint is CatalogLocation:
            if isinstance(value, str) and re.fullmatch(r"https?://[^/?#@]+[^?#@]*", value):
                return CatalogLocation(value.rstrip("/"))
            if not isinstance(value, str) or not value or "://" in value:
                raise ValueError(
                    "must be a file that the driver can access, or the address of a REST catalog, such as "
                    f"https://HOST/PATH, not {value!r}"
                )
            return CatalogLocation(self._directory / Path(value).expanduser())
        if hint is Location:
            if isinstance(value, str) and value.startswith("s3://") and value.strip("/") != "s3:":
                return Location(value.rstrip("/"))
            if not isinstance(value, str) or not value or "://" in value:
                raise ValueError(
                    "must be s3://BUCKET/PATH, or a path that all processes of Spark can access, not "
                    f"{value!r}"
                )
            return Location(self._directory / Path(value).expanduser())
        return _plain(hint, value)


_WIDTH = 98
"""The maximum length of a comment line in a template, in characters."""
_NAMES = {str: "a string", int: "a whole number", float: "a number", bool: "true or false"}


def _plain(hint: type[object], value: object) -> object:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ValueError(f"must be {_NAMES[hint]}, not {value!r}")
    return value


def template(name: str, summary: str, sections: Mapping[str, type[DataclassInstance]]) -> str:
    """Returns the text of a configuration file with all keys; keys with a default are commented out.

    :param sections: the types of the sections, by name
    """
    lines = [
        f"# {name}: {summary}.",
        f"# Run it with `magnetar pipeline {name} --config FILE`, at first with --dry-run.",
        "# Keys that are commented out show their default values.",
    ]
    for section, kind in sections.items():
        lines += ["", f"[{section}]"]
        notes, hints = _notes(kind), get_type_hints(kind)
        for each in fields(kind):
            note = notes.get(each.name, "").replace("``", "")
            if get_origin(hints[each.name]) is Literal:
                note = f"One of {', '.join(get_args(hints[each.name]))}. {note}".rstrip()
            lines += [f"# {line}" for line in wrap(" ".join(note.split()), _WIDTH)]
            lines.append(_key(each))
    return "\n".join(lines) + "\n"


def _notes(kind: type[DataclassInstance]) -> dict[str, str]:
    """Returns the docstrings of a class's fields, including inherited ones."""
    found = {}
    for each in reversed([each for each in kind.__mro__ if is_dataclass(each)]):
        [declaration] = ast.parse(dedent(inspect.getsource(each))).body
        for declared, after in pairwise(ast.iter_child_nodes(declaration)):
            if (
                isinstance(declared, ast.AnnAssign)
                and isinstance(declared.target, ast.Name)
                and isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
            ):
                found[declared.target.id] = inspect.cleandoc(str(after.value.value))
    return found


def _key(declared: Field[object]) -> str:
    given = declared.metadata.get(_EXAMPLE)
    if given is not None:
        return f"{declared.name} = {_toml(given)}"
    default = declared.default if declared.default_factory is MISSING else declared.default_factory()
    return f"#{declared.name} = {_toml('' if default is None else default)}"


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(name)} = {_toml(each)}" for name, each in value.items()]
        return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
    if isinstance(value, Path):
        return json.dumps(str(value))
    return json.dumps(value, ensure_ascii=False)


def load_document(path: Path) -> Document:
    """Reads a ``.toml`` or ``.json`` file.

    :raises ConfigurationRefused: the file cannot be read
    """
    try:
        text = path.read_text("utf-8")
        if path.suffix == ".json":
            values = json.loads(text)
        elif path.suffix == ".toml":
            values = tomllib.loads(text)
        else:
            raise ConfigurationRefused([f"{path}: the name of the file must end in .toml or .json"])
    except (OSError, ValueError) as error:
        raise ConfigurationRefused([f"{path}: {error}"]) from error
    if not isinstance(values, dict):
        raise ConfigurationRefused([f"{path} must be a table of sections, not {type(values).__name__}"])
    return Document(values, path.resolve().parent)


def check_expression(name: str, text: str) -> None:
    """Checks only the syntax of a Spark SQL expression; Spark checks columns and types once it has the
    topic's schema.

    :param name: the name of the key, for the error
    :param text: the expression; an empty string is accepted
    :raises ValueError: the expression is not Spark SQL
    """
    if not text:
        return
    # Only some pipelines have expressions.
    from sqlglot import parse_one
    from sqlglot.errors import SqlglotError

    try:
        parse_one(text, read="spark")
    except SqlglotError as error:
        raise ValueError(f"{name} = {text!r} is not a Spark SQL expression: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    problems: Sequence[Mapping[str, object]] = getattr(error, "errors", ())
    if not problems:
        # Only literals and quoted names that do not end cannot be divided into words.
        return "a quote is not closed"
    found = problems[0]
    # Its description of the problem names classes of the parser.
    what, end, word = str(found["description"]), int(str(found["col"])), str(found["highlight"])
    at = f"line {found['line']}, column"
    if what.startswith("Expecting "):
        return f"{what.removeprefix('Expecting ')} is missing after {at} {end}"
    if what.startswith("Required keyword"):
        return f"{word!r} at {at} {end - len(word) + 1} lacks an operand"
    return f"unexpected {word!r} at {at} {end - len(word) + 1}"


class PipelineError(Exception):
    """The pipeline cannot continue; the text gives the reason and the remedy."""


class ConfigurationRefused(PipelineError):
    """The configuration is not valid; the pipeline was not started."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
