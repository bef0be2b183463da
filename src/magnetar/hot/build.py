"""Compiles the hot modules with Cython."""

from __future__ import annotations

import os
import shutil
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path

from magnetar.hot import MODULES
from magnetar.hot.forms import compiled_path, digest_path, source_digest, source_path

_DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "annotation_typing": False,
    "embedsignature": False,
}
"""Bounds are always checked: lengths in these modules come from the network and the disk."""


def obstacle() -> str | None:
    """Why nothing can be compiled here; None when it can."""
    for package in ("Cython", "setuptools"):
        if find_spec(package) is None:
            return f"{package} is not installed"
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    if not headers.exists():
        return f"Python's headers are missing ({headers})"
    return None


def stale_modules(package: Path) -> list[str]:
    """The hot modules whose compiled form in ``package`` is missing or made from another source."""
    stale = []
    for module in MODULES:
        if not source_path(module).exists():
            continue
        digest = digest_path(module, package)
        if (
            not digest.exists()
            or not compiled_path(module, package).exists()
            or digest.read_text().strip() != source_digest(module)
        ):
            stale.append(module)
    return stale


def build(package: Path, *, force: bool = False, say: Callable[[str], object] = print) -> Sequence[str]:
    """Compiles what is not up to date into ``package / "_compiled"``; returns the modules compiled.

    :param package: a ``magnetar`` package folder: the running one, or the one of a wheel being built
    :raises Exception: the compiler's or Cython's own, when a module does not compile
    """
    modules = (
        [module for module in MODULES if source_path(module).exists()] if force else stale_modules(package)
    )
    if not modules:
        return modules
    target = package / "_compiled"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target) as scratch:
        for module in modules:
            say(f"compiling {module}")
            digest = source_digest(module)
            built = _compile(module, Path(scratch))
            digest_path(module, package).unlink(missing_ok=True)
            built.replace(compiled_path(module, package))
            digest_path(module, package).write_text(digest + "\n")
    return modules


def _compile(module: str, scratch: Path) -> Path:
    """Compiles one module; returns the extension file, somewhere below ``scratch``."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext

    extension = Extension(module, [str(source_path(module))], extra_compile_args=["-O2", "-g0"])
    extensions = cythonize(
        [extension], build_dir=str(scratch / "c"), compiler_directives=_DIRECTIVES, quiet=True, force=True
    )
    command = build_ext(Distribution({"name": module, "ext_modules": extensions}))
    command.build_lib = str(scratch / "lib")
    command.build_temp = str(scratch / "temp")
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(module))
