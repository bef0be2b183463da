"""Configuration files of pipelines, TOML or JSON: sections become frozen dataclasses.

All problems of a file are reported together.

A section's fields may be texts, numbers, truths, paths, choices (``Literal``), lists of texts
(``tuple[str, ...]``) and maps of texts (``dict[str, str]``); each may be left out when it has a default.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

__all__ = [
    "Cluster",
    "ConfigurationRefused",
    "Document",
    "PipelineError",
    "SparkSection",
    "load_document",
]
T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """The cluster with the messages."""

    service_url: str = "pulsar://localhost:6650"
    admin_url: str = "http://localhost:8080"
    auth_plugin: str = ""
    auth_params: str = field(default="", repr=False)
    tls_trust_certs: str = ""
    """PEM, a path that all of Spark's processes can read; empty: issuers that the system trusts."""
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
    """The Spark session."""

    master: str = "local[*]"
    """``local[N]``, ``spark://host:port``, or ``sc://host:port`` for Spark Connect."""
    conf: dict[str, str] = field(default_factory=dict)
    """Spark settings by name."""


class Document:
    """A configuration file; sections are read by type."""

    def __init__(self, values: Mapping[str, Any], directory: Path) -> None:
        """:param directory: base of relative paths"""
        self._values = values
        self._directory = directory
        self._taken: set[str] = set()
        self._problems: list[str] = []

    def section(self, name: str, kind: type[T]) -> T | None:
        """Returns a section as ``kind``; None if it has an error, which :meth:`check` raises."""
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
        """:raises ConfigurationRefused: there were errors or unknown sections; the text has all of them"""
        unknown = [name for name in self._values if name not in self._taken]
        for name in unknown:
            self._problems.append(f"{name}: unknown section; use {', '.join(sorted(self._taken))}")
        if self._problems:
            raise ConfigurationRefused(self._problems)

    def _fields(self, section: str, values: Mapping[str, Any], kind: type[Any]) -> dict[str, Any]:
        assert is_dataclass(kind)
        hints = get_type_hints(kind)
        known = {each.name: each for each in fields(kind)}
        for name in values:
            if name not in known:
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

    def _value(self, hint: Any, value: Any) -> Any:
        """:raises ValueError: the value has another type"""
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
        return _plain(hint, value)


_NAMES = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}


def _plain(hint: type[Any], value: Any) -> Any:
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ValueError(f"must be {_NAMES[hint]}, not {value!r}")
    return value


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
        raise ConfigurationRefused([f"{path} must have sections, not {type(values).__name__}"])
    return Document(values, path.resolve().parent)


class PipelineError(Exception):
    """The pipeline cannot continue; ``str()`` returns why, and what to do about it."""


class ConfigurationRefused(PipelineError):
    """The configuration is not valid; nothing was started."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)
