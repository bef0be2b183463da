"""A compiled form runs only when it was made from the source that is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from magnetar import hot
from magnetar.hot import forms
from magnetar.hot.build import build, obstacle, stale_modules
from magnetar.hot.forms import Form, form, source_path

MODULE = "magnetar.sample.quick"
PROGRAM = """
from array import array
import magnetar.sample.quick as quick
from magnetar import hot
told = hot.status().warning()
number = quick.first(array("q", [21]))
print(quick.twice(number), quick.__file__.endswith(".py"), told.count("\\n") if told else None)
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder of its own: the real finder, and one hot module."""
    target = tmp_path / "magnetar"
    (target / "sample").mkdir(parents=True)
    (target / "hot").mkdir()
    source = Path(hot.__file__).parent
    (target / "__init__.py").write_text((source.parent / "__init__.py").read_text())
    text = (source / "__init__.py").read_text()
    for name in ("SERVING", "MODULES"):
        listed = text.partition(f"{name} = (\n")[2].partition("\n)\n")[0]
        text = text.replace(listed, f"    {MODULE!r},")
    (target / "hot" / "forms.py").write_text((source / "forms.py").read_text())
    (target / "hot" / "__init__.py").write_text(text)
    (target / "sample" / "__init__.py").write_text("")
    (target / "sample" / "quick.py").write_text(
        "def twice(number):\n    return 2 * number\n\n\ndef first(numbers):\n    return numbers[0]\n"
    )
    (target / "sample" / "quick.pxd").write_text(
        "cpdef long long twice(long long number)\ncpdef long long first(long long[::1] numbers)\n"
    )
    monkeypatch.setattr(forms, "_PACKAGE", target)
    monkeypatch.delenv("MAGNETAR_PURE", raising=False)
    return target


def run(package: Path, pure: bool = False) -> tuple[str, str]:
    """Output and errors of a program that uses the module."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(package.parent)} | ({"MAGNETAR_PURE": "1"} if pure else {}),
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip(), done.stderr.strip()


def quiet(package: Path) -> list[str]:
    return list(build(package, [MODULE], say=lambda line: None))


needs_compiler = pytest.mark.skipif(obstacle() is not None, reason=f"nothing compiles here: {obstacle()}")


def test_without_a_compiled_form_the_source_runs(package: Path) -> None:
    assert run(package) == ("42 True 0", "")
    assert form(MODULE) is Form.ABSENT
    assert stale_modules(package, [MODULE]) == [MODULE]
    warning = hot.status([MODULE]).warning()
    assert warning is not None
    assert "not compiled" in warning
    assert "\n" not in warning


@needs_compiler
def test_a_compiled_form_runs_while_it_fits(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quiet(package) == [MODULE]
    assert quiet(package) == []
    assert run(package) == ("42 False None", "")
    assert form(MODULE) is Form.COMPILED
    assert hot.status([MODULE]).warning() is None
    assert run(package, pure=True) == ("42 True 0", "")
    monkeypatch.setenv("MAGNETAR_PURE", "1")
    assert form(MODULE) is Form.FORCED
    monkeypatch.delenv("MAGNETAR_PURE")

    source = package / "sample" / "quick.py"
    source.write_text(source.read_text().replace("2 * number", "number + number"))
    output, errors = run(package)
    assert output == "42 True None"
    assert len(errors.splitlines()) == 1
    assert MODULE in errors
    assert form(MODULE) is Form.STALE
    assert quiet(package) == [MODULE]
    assert run(package) == ("42 False None", "")

    types = package / "sample" / "quick.pxd"
    types.write_text(types.read_text() + "\n")
    assert form(MODULE) is Form.STALE


def test_without_a_compiler_nothing_is_built_and_one_line_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "magnetar.hot", "build"],
        env={"CC": "no-such-compiler", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") == 1
    assert "stay interpreted" in done.stdout


def test_what_a_broker_imports_is_compiled_first() -> None:
    # A broker imports the replicator with the first topic that it replicates; in a cluster it uses bookies.
    program = (
        "import sys, magnetar.server.standalone, magnetar.server.broker_process\n"
        "import magnetar.broker.replication.replicator, magnetar.ledger.bookkeeper.store\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(loaded.stdout.split()) & set(hot.MODULES) == set(hot.SERVING)


def test_every_hot_module_is_plain_python() -> None:
    for module in hot.MODULES:
        source = source_path(module)
        if source.exists():
            assert "import cython" not in source.read_text().lower()
