#!/usr/bin/env python3
"""Runs lint, type checks, and the unit tests that a change affects, before a commit.

    tools/check.py [BASE]

The change is the difference from BASE (HEAD: uncommitted changes), including untracked files. A test is
affected if it changed, or if it imports a changed module, directly or indirectly. A table, a page or another
file that is not a module counts as the module of its name, else as all modules of its package, and it affects
the tests that name it. If test helpers or the project's settings changed, all unit tests are affected.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from collections.abc import Collection
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
_ALL = ("pyproject.toml", "tests/conftest.py", "tests/harness/")
"""Changes of these affect every test."""


def changed(base: str) -> list[str]:
    """Returns the paths of files that differ from ``base``."""
    known = subprocess.run(
        ["git", "diff", "--name-only", base], cwd=ROOT, capture_output=True, text=True, check=True
    )
    unknown = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [*known.stdout.split(), *unknown.stdout.split()]


def module_of(path: str) -> str:
    """Returns the module of a file below src."""
    return ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__")


def modules_of(path: str, known: Collection[str]) -> set[str]:
    """Returns the modules of a file below src, or those that read it.

    :param known: all modules
    """
    if path.endswith((".py", ".pxd")):
        return {module_of(path)}
    stem = module_of(path)
    named = {stem, f"{stem}_pb2"}.intersection(known)
    if named:
        return named
    package = stem.rpartition(".")[0]
    while package and package not in known:
        package = package.rpartition(".")[0]
    return {package, *(module for module in known if module.rpartition(".")[0] == package)} - {""}


@cache
def _imports(path: Path) -> frozenset[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return frozenset(names)


def imported(test: Path) -> set[str]:
    """Returns the modules of Magnetar that a test imports, itself or through helpers."""
    names, read, waiting = set[str](), set[Path](), [test]
    while waiting:
        path = waiting.pop()
        if path in read or not path.exists():
            continue
        read.add(path)
        found = _imports(path)
        names |= {name for name in found if name.startswith("magnetar")}
        folders = (path.parent, ROOT / "tests" / "harness")
        waiting += [folder / f"{name}.py" for name in found - names for folder in folders]
    return names


def _folder_of_tests(path: Path) -> Path:
    """Returns the innermost folder around a file that has tests."""
    return next(folder for folder in path.parents if any(folder.glob("test_*.py")) or folder == ROOT)


def touched(paths: list[str]) -> list[str]:
    """Returns the unit tests that a change of these files affects."""
    if any(path.startswith(_ALL) for path in paths):
        return ["tests/unit"]
    graph = grimp.build_graph("magnetar")
    sources = [path for path in paths if path.startswith("src/")]
    modules = {module for path in sources for module in modules_of(path, graph.modules)}
    names = {Path(path).name for path in sources if not path.endswith((".py", ".pxd"))}
    affected = set(modules)
    for module in modules & graph.modules:
        affected |= graph.find_downstream_modules(module)
    unit = [path for path in paths if path.startswith("tests/unit/")]
    shared = {_folder_of_tests(ROOT / path) for path in unit if not Path(path).name.startswith("test_")}
    shared |= {ROOT / "tests" / "unit" / "deploy" for path in paths if path.startswith("deploy/")}
    tests = []
    for test in sorted((ROOT / "tests" / "unit").rglob("test_*.py")):
        name = str(test.relative_to(ROOT))
        reads = any(each in test.read_text() for each in names)
        if name in unit or not shared.isdisjoint(test.parents) or reads or imported(test) & affected:
            tests.append(name)
    return tests


def run(*command: str) -> bool:
    """Runs a command, which prints its output; returns whether it succeeded."""
    began = time.monotonic()
    good = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    print(
        f"=== {' '.join(command[:3])}: {'passed' if good else 'FAILED'}, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return good


def main() -> int:
    """Returns 0 on success."""
    tests = touched(changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))
    commands = [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("lint-imports",)]
    if tests:
        print(f"{len(tests)} files of unit tests are touched", flush=True)
        commands.append((sys.executable, "-m", "pytest", "-q", "-n", "2", *tests))
    failed = [command for command in commands if not run(*command)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
