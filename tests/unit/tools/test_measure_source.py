"""What `make lint` counts of the source, and that no figure exceeds its bound."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path

import pytest
from tools.measure_source import ROOT, TITLES, Module, measure, modules, second_implementations, started

from magnetar.broker.connections.connection import Connection
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.broker.topics.persistent import Topic

_SAMPLE = '''"""A module."""

import typing
from typing import Any, Protocol, cast


class Store(Protocol):
    """What keeps values."""

    def get(self, name: str) -> Any: ...
    def put(self, name: str, value: dict[str, Any]) -> None: ...


class Disk:
    size: int = 0

    def get(self, name: str) -> object:
        assert name
        return cast("str", name)

    def put(self, name: str, value: object) -> None:
        """Keeps it."""
        self.size += 1  # type: ignore[misc]


class Disk:  # again
    async def run(self, loop: typing.Any) -> None:
        loop.create_task(self.run(loop))
'''


def test_what_a_module_is_counted_as(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.measure_source.ROOT", tmp_path)
    path = tmp_path / "sample.py"
    path.write_text(_SAMPLE)
    face = tmp_path / "__init__.py"
    face.write_text('"""A package."""\n')
    found = measure([Module(face), Module(path)])
    assert {name: len(places) for name, places in found.items()} == {
        "modules": 1,
        "faces": 1,
        "small": 1,
        "large": 0,
        "statements": 15,
        "protocols": 1,
        "single": 1,
        "any": 3,
        "bare": 2,
        "tasks": 1,
        "casts": 1,
        "ignores": 1,
        "assertions": 1,
        "twice": 1,
        "start": 0,
    }
    assert found["single"] == ["sample.py:7 Store"]
    assert found["ignores"] == ["sample.py:23"]


def test_a_class_elsewhere_implements_a_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.measure_source.ROOT", tmp_path)
    path, other = tmp_path / "sample.py", tmp_path / "simulated.py"
    path.write_text(_SAMPLE)
    other.write_text("class Base:\n    def get(self): ...\nclass Simulated(Base):\n    def put(self): ...\n")
    found = measure([Module(path)], [Module(other)])
    assert not found["single"]
    assert len(found["modules"]) == 1


def test_the_source_keeps_to_its_bounds() -> None:
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["magnetar"]["bounds"]
    assert bounds.keys() == TITLES.keys()
    found = measure(modules(), second_implementations())
    found["start"] = started()
    exceeded = {name: len(found[name]) for name in TITLES if len(found[name]) > bounds[name]}
    assert not exceeded, f"see tools/measure_source.py --list: {exceeded}"


def test_a_start_imports_nothing_of_what_it_does_not_use() -> None:
    unused = (
        "cryptography",
        "email",
        "fastavro",
        "importlib.metadata",
        "jwt",
        "magnetar.cli.other_commands",
        "magnetar.client.client",
        "magnetar.http.websocket",
        "magnetar.ledger.bookkeeper.store",
        "magnetar.metadata.zookeeper",
        "magnetar.proxy",
        "magnetar.security.providers",
        "magnetar.spark",
        "re2",
        "zipfile",
    )
    imported = started()
    assert "magnetar.server.standalone" in imported
    assert not [
        each for each in imported if each.startswith(tuple(f"{name}." for name in unused)) or each in unused
    ]


@pytest.mark.parametrize(("kind", "most"), [(Topic, 45), (Subscription, 45), (Connection, 35)])
def test_the_largest_classes_of_the_broker_leave_further_subjects_to_their_parts(
    kind: type, most: int
) -> None:
    callables = (property, staticmethod, classmethod)
    names = {
        name
        for each in kind.__mro__
        if each.__module__.startswith("magnetar.")
        for name, value in vars(each).items()
        if (inspect.isfunction(value) or isinstance(value, callables)) and not name.startswith("__")
    }
    assert len(names) <= most, sorted(names)
