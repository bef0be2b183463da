"""Compiles the hot modules with Cython."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from magnetar.hot import MODULES
from magnetar.hot.forms import compiled_path, digest_path, source_digest, source_path

if TYPE_CHECKING:
    from setuptools import Extension

_FLAGS = ["-O2", "-g0"]
_DIRECTIVES = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "annotation_typing": False,
    "embedsignature": False,
}
"""Bounds are always checked: lengths in these modules come from the network and the disk."""


def obstacle() -> str | None:
    """Returns why compiling is not possible here; None: it is possible."""
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


def stale_modules(package: Path, modules: Sequence[str] = MODULES) -> list[str]:
    """Returns the modules whose compiled form in ``package`` is missing or stale."""
    stale = []
    for module in modules:
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


def build(
    package: Path,
    modules: Sequence[str] = MODULES,
    *,
    force: bool = False,
    say: Callable[[str], object] = print,
) -> Sequence[str]:
    """Compiles the modules that are not up to date into ``package / "_compiled"``; returns the compiled
    modules.

    The modules are compiled in parallel, with one process per processor.

    :param package: a ``magnetar`` package folder: the running one, or the one of a wheel being built
    :raises Exception: an error of the compiler or of Cython
    """
    wanted = [m for m in modules if source_path(m).exists()] if force else stale_modules(package, modules)
    if not wanted:
        return wanted
    target = package / "_compiled"
    target.mkdir(parents=True, exist_ok=True)
    shared = _shared_path(target)
    with (
        tempfile.TemporaryDirectory(dir=target) as scratch,
        ProcessPoolExecutor(os.cpu_count() or 1) as processes,
    ):
        helpers = processes.submit(_compile_shared, Path(scratch)) if not shared.exists() else None
        building = {}
        for module in wanted:
            job = processes.submit(_compile, module, source_path(module), Path(scratch))
            building[module] = source_digest(module), job
        say(f"compiling {len(wanted)} hot modules")
        if helpers is not None:
            helpers.result().replace(shared)
        for module, (digest, built) in building.items():
            extension = built.result()
            digest_path(module, package).unlink(missing_ok=True)
            extension.replace(compiled_path(module, package))
            digest_path(module, package).write_text(digest + "\n")
    return wanted


def _shared_name() -> str:
    """Returns the name of the module with Cython's shared code, which each module would compile otherwise.

    The name contains the release of Cython, because modules only work with the shared code of the release
    that compiled them.
    """
    from Cython import __version__ as release

    return "shared_" + re.sub(r"\W", "_", release)


def _shared_path(target: Path) -> Path:
    return target / (_shared_name() + EXTENSION_SUFFIXES[0])


def _compile_shared(scratch: Path) -> Path:
    """Compiles the shared code; returns the extension file."""
    from setuptools import Extension

    source = scratch / (_shared_name() + ".c")
    subprocess.run([sys.executable, "-m", "cython", "--generate-shared", str(source)], check=True)
    return _link(Extension(_shared_name(), [str(source)], extra_compile_args=_FLAGS), scratch / "shared")


def _compile(module: str, source: Path, scratch: Path) -> Path:
    """Compiles one module; returns the extension file, somewhere below ``scratch``."""
    from Cython.Build import cythonize
    from setuptools import Extension

    own = scratch / module
    extensions = cythonize(
        [Extension(module, [str(source)], extra_compile_args=_FLAGS)],
        build_dir=str(own / "c"),
        compiler_directives=_DIRECTIVES,
        shared_utility_qualified_name="magnetar._compiled." + _shared_name(),
        quiet=True,
        force=True,
    )
    return _link(extensions[0], own)


def _link(extension: Extension, scratch: Path) -> Path:
    """Runs the C compiler; returns the extension file."""
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    command = build_ext(Distribution({"name": extension.name, "ext_modules": [extension]}))
    command.build_lib = str(scratch / "lib")
    command.build_temp = str(scratch / "temp")
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(extension.name))
