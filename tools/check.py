#!/usr/bin/env python3
"""Lint, types, and the unit tests that a change touches: what to run before each commit.

    tools/check.py [BASE]

The change is what differs from BASE (HEAD: what is not committed yet), files that git does not know included.
A test is touched when it changed, or when it imports, over whatever modules, one that did. When a test's
helpers or the project's settings changed, all unit tests are.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import time
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
_ALL = ("pyproject.toml", "tests/conftest.py", "tests/harness/")
"""A change of these may touch every test."""


def changed(base: str) -> list[str]:
    """Paths of what differs from ``base``."""
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
    """The module in a file below src."""
    return ".".join(Path(path).with_suffix("").parts[1:]).removesuffix(".__init__")


def imported(test: Path) -> set[str]:
    """Modules of Magnetar that a test names."""
    names = set()
    for node in ast.walk(ast.parse(test.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("magnetar"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names if alias.name.startswith("magnetar")}
    return names


def _folder_of_tests(path: Path) -> Path:
    """The innermost folder around a file that has tests."""
    return next(folder for folder in path.parents if any(folder.glob("test_*.py")) or folder == ROOT)


def touched(paths: list[str]) -> list[str]:
    """The unit tests that a change of these files touches."""
    if any(path.startswith(_ALL) for path in paths):
        return ["tests/unit"]
    graph = grimp.build_graph("magnetar")
    modules = {
        module_of(path) for path in paths if path.startswith("src/") and path.endswith((".py", ".pxd"))
    }
    affected = set(modules)
    for module in modules & graph.modules:
        affected |= graph.find_downstream_modules(module)
    unit = [path for path in paths if path.startswith("tests/unit/")]
    shared = {_folder_of_tests(ROOT / path) for path in unit if not Path(path).name.startswith("test_")}
    tests = []
    for test in sorted((ROOT / "tests" / "unit").rglob("test_*.py")):
        name = str(test.relative_to(ROOT))
        if name in unit or not shared.isdisjoint(test.parents) or imported(test) & affected:
            tests.append(name)
    return tests


def run(*command: str) -> bool:
    """Whether it succeeds; it prints for itself."""
    began = time.monotonic()
    good = subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    print(
        f"=== {' '.join(command[:3])}: {'passed' if good else 'FAILED'}, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return good


def main() -> int:
    """0 when all is well."""
    tests = touched(changed(sys.argv[1] if len(sys.argv) > 1 else "HEAD"))
    commands = [("ruff", "check", "."), ("ruff", "format", "--check", "."), ("mypy",), ("lint-imports",)]
    if tests:
        print(f"{len(tests)} files of unit tests are touched", flush=True)
        commands.append((sys.executable, "-m", "pytest", "-q", "-n", "2", *tests))
    failed = [command for command in commands if not run(*command)]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
