"""Parses the JAAS file of Java's ``-Djava.security.auth.login.config``, which contains logins with
credentials.

A section has a name and login modules with options::

    BookKeeper {
      org.apache.zookeeper.server.auth.DigestLoginModule required
      username="broker"
      password="secret";
    };
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_TOKEN = re.compile(
    r'\s+|//[^\n]*|\#[^\n]*|/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|([{};=])|([^\s{};="]+)', re.DOTALL
)
_FLAGS = ("required", "requisite", "sufficient", "optional")
MAX_BYTES = 1 << 20


class LoginRefused(ValueError):
    """The file cannot be used; the message says why, without secrets."""


class LoginModule(NamedTuple):
    name: str
    """The name of a Java class."""
    options: Mapping[str, str]


def login_sections(path: str) -> Mapping[str, Sequence[LoginModule]]:
    """Returns all sections of a file, by name.

    :raises LoginRefused: the file cannot be read, or has another format
    """
    try:
        data = Path(path).read_bytes()
        text = data.decode()
    except OSError as error:
        raise LoginRefused(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise LoginRefused(f"{path} is not UTF-8 text") from error
    if len(data) > MAX_BYTES:
        raise LoginRefused(f"{path} exceeds {MAX_BYTES} bytes, the maximum size of a login file")
    return _Reading(path, text).sections()


class _Reading:
    def __init__(self, path: str, text: str) -> None:
        self._path = path
        self._line = 1
        self._tokens = self._cut(text)
        self._next: str | None = None
        self._step()

    def _cut(self, text: str) -> Iterator[str]:
        at = 0
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._refused("a quote is not closed")
            quoted, mark, word = match.groups()
            if quoted is not None:
                yield re.sub(r"\\(.)", r"\1", quoted)
            elif mark or word:
                yield mark or word
            self._line += match[0].count("\n")
            at = match.end()

    def _refused(self, what: str) -> LoginRefused:
        return LoginRefused(f"{self._path}, line {self._line}: {what}")

    def _step(self) -> str | None:
        found, self._next = self._next, next(self._tokens, None)
        return found

    def _take(self, wanted: str) -> None:
        if self._next != wanted:
            raise self._refused(f"{wanted} is missing")
        self._step()

    def _word(self, what: str) -> str:
        if self._next is None or self._next in "{};=":
            raise self._refused(f"{what} is missing")
        return self._step() or ""

    def sections(self) -> Mapping[str, Sequence[LoginModule]]:
        found: dict[str, Sequence[LoginModule]] = {}
        while self._next is not None:
            name = self._word("the name of a section")
            self._take("{")
            modules: list[LoginModule] = []
            while self._next != "}":
                modules.append(self._module())
            self._take("}")
            self._take(";")
            found[name] = modules
        return found

    def _module(self) -> LoginModule:
        name = self._word("a login module")
        flag = self._word("required, requisite, sufficient or optional")
        if flag.lower() not in _FLAGS:
            raise self._refused(f"one of {', '.join(_FLAGS)} is missing after {name}")
        options: dict[str, str] = {}
        while self._next != ";":
            option = self._word("; or an option")
            self._take("=")
            options[option] = self._step() or ""
        self._take(";")
        return LoginModule(name, options)
