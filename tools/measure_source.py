#!/usr/bin/env python3
"""Counts properties that make the source hard to read, or a start slow; fails if a figure exceeds its bound
in ``pyproject.toml``.

    tools/measure_source.py [--list FIGURE]

Prints one line for each figure: its value and its bound (``[tool.magnetar.bounds]``). ``--list`` prints the
places that a figure counts. Generated modules are ignored: ``*_pb2.py``, and
those of :mod:`generate_client`.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "magnetar"
HARNESS = ROOT / "tests" / "harness"
SECOND_IMPLEMENTATIONS = ("simulated_io/*.py", "faulty_*.py")
"""Below ``HARNESS``: the simulated world, which implements Protocols of the source a second time."""
GENERATED = re.compile(r"_pb2$|^(blocking_)?opening$")
"""The names of generated modules."""
SMALL_LINES = 40
LARGE_LINES = 600
TITLES = {
    "modules": "modules, without the faces of packages",
    "faces": "faces of packages (__init__.py) below 40 lines",
    "small": "other modules below 40 lines",
    "large": "modules above 600 lines",
    "statements": "statements, without imports and docstrings",
    "protocols": "Protocols",
    "single": "Protocols with at most one implementation, by its methods",
    "any": "annotations with Any",
    "bare": "annotations that are Any and nothing else",
    "tasks": "calls of create_task",
    "casts": "calls of cast",
    "ignores": "comments 'type: ignore'",
    "assertions": "assert statements",
    "twice": "class names of more than one class",
    "start": "modules that `magnetar standalone` imports until it serves",
}
Found = dict[str, list[str]]
_START = """
import os, signal, sys
known = set(sys.modules)
from magnetar.cli.magnetar import main

class Output:
    # The only line is written when the broker serves.
    def write(self, line):
        os.write(1, chr(10).join(sys.modules.keys() - known).encode())
        os.kill(os.getpid(), signal.SIGTERM)

    def flush(self):
        pass

sys.stdout = Output()
ports = ["--binary-port", "0", "--http-port", "0"]
sys.exit(main(["standalone", "--data-dir", sys.argv[1], "--log-level", "error", *ports]))
"""


class Module:
    """A file of the source, parsed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.place = str(path.relative_to(ROOT))
        text = path.read_text()
        self.lines = text.count("\n")
        self.tree = ast.parse(text)

    @property
    def is_face(self) -> bool:
        return self.path.name == "__init__.py" and self.lines < SMALL_LINES

    def at(self, node: ast.AST) -> str:
        return f"{self.place}:{getattr(node, 'lineno', 1)}"


def modules() -> list[Module]:
    """Returns all files of the source that are not generated."""
    return [Module(path) for path in sorted(SOURCE.rglob("*.py")) if not GENERATED.search(path.stem)]


def second_implementations() -> list[Module]:
    """Returns the files of the simulated world."""
    return [Module(path) for pattern in SECOND_IMPLEMENTATIONS for path in sorted(HARNESS.glob(pattern))]


def measure(source: list[Module], elsewhere: Sequence[Module] = ()) -> Found:
    """Returns the places that each figure counts.

    :param elsewhere: files whose classes may implement Protocols of the source; nothing else in them counts
    """
    found: Found = {name: [] for name in TITLES}
    for module in source:
        _measure_file(module, found)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.stmt | ast.Call | ast.arg):
                _measure_node(module, node, found)
        found["ignores"] += [f"{module.place}:{line}" for line in _ignores(module.path)]
    _measure_classes(source, elsewhere, found)
    return found


def started() -> list[str]:
    """Returns the modules that a serving broker has imported, without those of the bare interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE.parent)}
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            [sys.executable, "-c", _START, folder],
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            timeout=60,
            check=True,
        )
    return sorted(process.stdout.split())


def _measure_file(module: Module, found: Found) -> None:
    if module.is_face:
        found["faces"].append(module.place)
        return
    found["modules"].append(module.place)
    if module.lines < SMALL_LINES:
        found["small"].append(f"{module.place}: {module.lines} lines")
    if module.lines > LARGE_LINES:
        found["large"].append(f"{module.place}: {module.lines} lines")


def _measure_node(module: Module, node: ast.AST, found: Found) -> None:
    if isinstance(node, ast.stmt) and not _is_import_or_text(node):
        found["statements"].append(module.at(node))
    if isinstance(node, ast.Assert):
        found["assertions"].append(module.at(node))
    if isinstance(node, ast.Call):
        called = _last_name(node.func)
        if called in ("create_task", "cast"):
            found["tasks" if called == "create_task" else "casts"].append(module.at(node))
    for annotation in _annotations(node):
        if _names_any(annotation):
            found["any"].append(module.at(annotation))
            if _last_name(annotation) == "Any":
                found["bare"].append(module.at(annotation))


def _is_import_or_text(node: ast.stmt) -> bool:
    """Whether a statement is an import, or a docstring."""
    return isinstance(node, ast.Import | ast.ImportFrom) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _last_name(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
        yield node.annotation
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
        yield node.returns


def _names_any(annotation: ast.expr) -> bool:
    return any(_last_name(node) == "Any" for node in ast.walk(annotation))


def _ignores(path: Path) -> Iterator[int]:
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type == tokenize.COMMENT and "type: ignore" in token.string:
                yield token.start[0]


def _measure_classes(source: list[Module], elsewhere: Sequence[Module], found: Found) -> None:
    """Counts Protocols, and names that several classes have."""
    places: dict[str, list[str]] = defaultdict(list)
    protocols: list[tuple[str, str, frozenset[str]]] = []
    classes = [node for module in elsewhere for node in module.tree.body if isinstance(node, ast.ClassDef)]
    for module in source:
        for node in module.tree.body:
            if not isinstance(node, ast.ClassDef):
                continue
            places[node.name].append(module.at(node))
            if any(_is_protocol(base) for base in node.bases):
                protocols.append((node.name, module.at(node), _members(node)))
            else:
                classes.append(node)
    by_name = {node.name: node for node in classes}
    methods = [_inherited(node, by_name, frozenset()) for node in classes]
    for name, place, wanted in protocols:
        found["protocols"].append(f"{place} {name}")
        if sum(wanted <= has for has in methods) <= 1:
            found["single"].append(f"{place} {name}")
    for name, several in sorted(places.items()):
        if len(several) > 1:
            found["twice"].append(f"{name}: {', '.join(several)}")


def _is_protocol(base: ast.expr) -> bool:
    """Whether a base is ``typing.Protocol``, and not for instance ``asyncio.Protocol``."""
    bare = _without_index(base)
    if isinstance(bare, ast.Attribute):
        return bare.attr == "Protocol" and _last_name(bare.value) == "typing"
    return _last_name(bare) == "Protocol"


def _inherited(node: ast.ClassDef, known: Mapping[str, ast.ClassDef], seen: frozenset[str]) -> frozenset[str]:
    """Returns the members of a class and of its bases, which are found by their names."""
    found = _members(node)
    for base in (_last_name(_without_index(each)) for each in node.bases):
        if base in known and base != node.name and base not in seen:
            found |= _inherited(known[base], known, seen | {node.name})
    return found


def _without_index(node: ast.expr) -> ast.expr:
    return node.value if isinstance(node, ast.Subscript) else node


def _members(node: ast.ClassDef) -> frozenset[str]:
    """Returns the names of methods, and of attributes that the class or its constructor assigns."""
    found = set()
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(each.name)
        elif isinstance(each, ast.AnnAssign | ast.Assign):
            targets = [each.target] if isinstance(each, ast.AnnAssign) else each.targets
            found.update(_last_name(target) for target in targets)
    return frozenset(found - {"__init__", ""})


def main() -> int:
    parser = argparse.ArgumentParser(description="Counts what makes the source hard to read.")
    parser.add_argument("--list", choices=list(TITLES), help="print the places that this figure counts")
    options = parser.parse_args()
    found = measure(modules(), second_implementations())
    found["start"] = started()
    if options.list is not None:
        print("\n".join(found[options.list]))
        return 0
    bounds = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["magnetar"]["bounds"]
    exceeded = [name for name in TITLES if len(found[name]) > bounds[name]]
    for name, title in TITLES.items():
        print(f"{len(found[name]):7,} of {bounds[name]:6,}  {title} ({name})")
    for name in exceeded:
        print(
            f"{name}: {len(found[name])} exceeds the bound {bounds[name]} in pyproject.toml; "
            f"`tools/measure_source.py --list {name}` prints the places",
            file=sys.stderr,
        )
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
