"""The reference of the client library is up to date and complete, and each docstring says what a caller must
know:
the meaning, each argument with its unit, and the errors."""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

import client_reference as reference  # noqa: E402

from magnetar import client  # noqa: E402
from magnetar.client import aio, exceptions  # noqa: E402

SHOWN = [member for section in (*reference.BLOCKING, *reference.ASYNCIO) for member in section.members]
CLASSES = [member for member in SHOWN if isinstance(member, type)]
UNITS = re.compile(r"milliseconds|seconds|\bbytes?\b|timedelta")
HAS_UNIT = re.compile(r"timeout|delay|interval|timestamp|time_ms|_ms$|millis|seconds|bytes|deliver_")
FAILS_NEVER = {"Producer.flush"}
"""Methods that wait and raise nothing but CancelledError."""


def callables() -> Iterator[tuple[str, Callable[..., object], str]]:
    """Yields the name, the function and the docstring of each public callable and property."""
    for member in SHOWN:
        if not isinstance(member, type):
            yield member.__name__, member, member.__doc__ or ""
            continue
        if not is_dataclass(member) and member not in reference.MADE_BY_CLIENT and not is_protocol(member):
            made = member.__init__
            yield f"{member.__module__}.{member.__name__}.__init__", made, made.__doc__ or ""
        for name, value in reference.members_of(member):
            function = value.fget if isinstance(value, property) else value
            assert callable(function)
            yield (
                f"{member.__module__}.{member.__name__}.{name}",
                function,
                reference.docstring_of(member, name, value),
            )


def is_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_protocol", False))


CALLABLES = {name: (function, docstring) for name, function, docstring in callables()}
WAITING = {
    name.rsplit(".", 2)[1] + "." + name.rsplit(".", 2)[2]
    for name, (function, _) in CALLABLES.items()
    if inspect.iscoroutinefunction(function)
}


def test_pages_are_up_to_date() -> None:
    for name, text in reference.texts().items():
        page = reference.PAGES / name
        assert page.read_text("utf-8") == text, f"{name}: run python tools/client_reference.py"


def test_each_public_name_is_in_the_reference() -> None:
    told = "".join(reference.texts().values())
    named = set(re.findall(r"^#{3,4} (?:\w+\.)?(\w+)$|^\| `(\w+)` \|", told, re.MULTILINE))
    found = {name for pair in named for name in pair if name}
    assert {*client.__all__, *aio.__all__} - found == {"Result"}
    assert len(CALLABLES) > 120


@pytest.mark.parametrize("name", CALLABLES)
def test_a_docstring_has_meaning_arguments_and_errors(name: str) -> None:
    function, docstring = CALLABLES[name]
    known = reference.described(docstring)
    _, owner, method = name.rsplit(".", 2) if name.count(".") > 1 else ("", "", name)
    assert known.text or known.returns or method == "__init__", "no meaning"
    for each in reference.parameters_of(function):
        meaning = known.parameters.get(each.name, "")
        assert meaning, f"{each.name} has no meaning"
        if HAS_UNIT.search(each.name) and each.annotation != "bool" and "Mapping" not in str(each.annotation):
            unit = re.search(r"_(ms|millis|seconds|bytes)$", each.name)
            assert unit or UNITS.search(meaning) or "same" in meaning, f"{each.name} has no unit: {meaning}"
    if f"{owner}.{method}" in WAITING - FAILS_NEVER:
        assert known.raises, "no errors"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_a_class_has_a_meaning(kind: type) -> None:
    assert reference.described(kind.__doc__ or "").text
    assert not (kind.__doc__ or "").startswith(f"{kind.__name__}("), "dataclasses have a signature by default"
    if is_dataclass(kind):
        meanings = reference.meanings_of(kind)
        assert {field.name for field in fields(kind)} - set(meanings) == set()


@pytest.mark.parametrize("kind", reference.enumerations(), ids=lambda kind: kind.__name__)
def test_an_enumeration_has_a_meaning_for_each_member(kind: enum.EnumMeta) -> None:
    assert set(kind.__members__) - set(reference.meanings_of(kind)) == set()


def test_each_error_has_a_meaning_of_its_own() -> None:
    meanings = [reference.described(kind.__doc__ or "").text for kind in reference.errors()]
    assert all(meanings)
    assert len(set(meanings)) == len(exceptions.__all__) - 1


def test_internal_names_exist() -> None:
    for kind, names in reference.INTERNAL.items():
        assert {name for name in names if not hasattr(kind, name)} - set(
            getattr(kind, "__annotations__", {})
        ) == set(), kind


def test_docstrings_become_markdown() -> None:
    known = reference.described(
        """Does :meth:`a.b` with ``c``.

        :param one: the first,
            in two lines
        :returns: the id
        :raises Timeout: too late
        """
    )
    assert known == reference.Described(
        "Does `a.b` with `c`.", {"one": "the first, in two lines"}, "the id", [("Timeout", "too late")]
    )


def test_a_function_without_meaning_is_found() -> None:
    def function(size: int) -> None:
        """:param other: another one"""

    known = reference.described(function.__doc__ or "")
    assert not known.text
    assert "size" not in known.parameters
