#!/usr/bin/env python3
"""Writes the files of a release: wheels, source distribution, chart, list of components (SBOM) and checksums.

    tools/release.py [--dist DIR] [--python PATH ...]

The files are made from what git tracks here, in a temporary folder:

- a wheel with the compiled hot modules for each CPython, as manylinux where auditwheel agrees;
- a wheel without them, for every other interpreter and system;
- the source distribution, and the chart for Kubernetes;
- a CycloneDX list of what an installation of the compiled wheel contains;
- SHA256SUMS.

Each wheel is installed into an empty environment, and its `magnetar --version` has to name the commit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from magnetar.build_info import COMMIT_FILE

ROOT = Path(__file__).resolve().parent.parent
CHART = "deploy/helm/magnetar"
OLDEST = (3, 11)
NEWEST_TRIED = 20
_BUILD = "from setuptools import build_meta as b; import sys; print(getattr(b, sys.argv[1])(sys.argv[2]))"
_TAGS = "import sys; v = 'cp%d%d' % sys.version_info[:2]; print(v)"


class Failed(Exception):
    """A step that failed; ``str()`` is for the person who runs it."""


def run(command: Sequence[object], cwd: Path, **environment: str) -> str:
    """Returns what a command printed.

    :raises Failed: it ended with an error
    """
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        said = (ended.stdout + ended.stderr).strip()[-3000:]
        raise Failed(f"{' '.join(str(part) for part in command)} ended with {ended.returncode}:\n{said}")
    return ended.stdout


def commit() -> str:
    """Returns the commit of this checkout, with ``-dirty`` if tracked files have changed since."""
    found = run(["git", "rev-parse", "--short=12", "HEAD"], ROOT).strip()
    changed = run(["git", "status", "--porcelain", "--untracked-files=no"], ROOT).strip()
    return f"{found}-dirty" if changed else found


def stage(folder: Path, made_from: str) -> None:
    """Copies what git tracks, and notes the commit for the packages."""
    for name in run(["git", "ls-files", "-z"], ROOT).split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    (folder / "src" / "magnetar" / COMMIT_FILE).write_text(made_from + "\n", "utf-8")


def interpreters(given: Sequence[str]) -> list[str]:
    """Returns the CPythons to compile for: those given, or all that are found.

    :raises Failed: a given one does not exist or is too old
    """
    if given:
        for each in given:
            found = shutil.which(each)
            if found is None:
                raise Failed(f"{each}: no such interpreter")
            asked = run([found, "-c", f"import sys; print(sys.version_info[:2] >= {OLDEST})"], ROOT)
            if asked.strip() != "True":
                raise Failed(f"{each}: Magnetar needs Python {OLDEST[0]}.{OLDEST[1]} or newer")
        return list(given)
    named = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST_TRIED)]
    running = sys.version_info[:2]
    others = [name for name in named if name != f"python3.{running[1]}" and _has_headers(name)]
    return [sys.executable, *others]


def _has_headers(name: str) -> bool:
    if shutil.which(name) is None:
        return False
    text = "import os, sysconfig; print(os.path.exists(sysconfig.get_path('include') + '/Python.h'))"
    asked = subprocess.run([name, "-c", text], capture_output=True, text=True, check=False)
    return asked.stdout.strip() == "True"


def compiled_wheel(pure: Path, staged: Path, python: str, work: Path, dist: Path) -> Path:
    """Adds the compiled hot modules for ``python`` to the contents of the pure wheel.

    :raises Failed: a module does not compile, or a file is missing
    """
    compiled = staged / "src" / "magnetar" / "_compiled"
    shutil.rmtree(compiled, ignore_errors=True)
    interpreter = python
    if Path(python).resolve() != Path(sys.executable).resolve():
        interpreter = str(environment(work / "compiler", python, ["cython>=3.1,<4", "setuptools>=77"]))
    run([interpreter, "-m", "magnetar.hot", "build", "--force"], staged, PYTHONPATH=str(staged / "src"))
    if not list(compiled.glob("*.so")):
        raise Failed(f"{python}: nothing was compiled; python -m magnetar.hot build says why")
    contents = work / "contents"
    shutil.rmtree(contents, ignore_errors=True)
    with zipfile.ZipFile(pure) as packed:
        packed.extractall(contents)
    shutil.copytree(
        compiled, contents / "magnetar" / "_compiled", ignore=shutil.ignore_patterns("*.c", "__pycache__")
    )
    tag = run([python, "-c", _TAGS], ROOT).strip()
    [described] = contents.glob("*.dist-info/WHEEL")
    kept = [
        line
        for line in described.read_text().splitlines()
        if not line.startswith(("Tag:", "Root-Is-Purelib:"))
    ]
    machine = os.uname().machine
    kept += ["Root-Is-Purelib: false", f"Tag: {tag}-{tag}-linux_{machine}"]
    described.write_text("\n".join(line for line in kept if line) + "\n")
    packed_into = work / "packed"
    shutil.rmtree(packed_into, ignore_errors=True)
    packed_into.mkdir()
    run([sys.executable, "-m", "wheel", "pack", contents, "--dest-dir", packed_into], ROOT)
    [linux] = packed_into.iterdir()
    repaired = work / "repaired"
    shutil.rmtree(repaired, ignore_errors=True)
    run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", repaired, linux],
        ROOT,
        PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    )
    [found] = repaired.iterdir()
    return Path(shutil.move(found, dist / found.name))


def environment(folder: Path, python: str, packages: Sequence[object]) -> Path:
    """Makes an empty environment with these packages; returns its interpreter."""
    shutil.rmtree(folder, ignore_errors=True)
    run([python, "-m", "venv", folder], ROOT)
    inside = folder / "bin" / "python"
    run([inside, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], ROOT)
    return inside


def chart(dist: Path) -> Path:
    """Packs the chart as ``helm package`` does."""
    described = (ROOT / CHART / "Chart.yaml").read_text("utf-8")
    fields = dict(line.split(": ", 1) for line in described.splitlines() if ": " in line and line[0] != " ")
    packed = dist / f"{fields['name']}-chart-{fields['version'].strip()}.tgz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(ROOT / CHART, arcname=fields["name"])
    return packed


def components(inside: Path, file: Path) -> None:
    """Writes the CycloneDX list of what an environment contains."""
    run([sys.executable, "-m", "cyclonedx_py", "environment", inside, "--of", "JSON", "-o", file], ROOT)
    listed = json.loads(file.read_text("utf-8"))
    if not any(each["name"] == "magnetar" for each in listed["components"]):
        raise Failed(f"{file.name} does not list magnetar")


def check(inside: Path, made_from: str, form: str) -> None:
    """:raises Failed: the installed command names another commit, or runs in another form"""
    said = run([inside, "-m", "magnetar", "--version"], ROOT.parent).strip()
    if f"(commit {made_from}, {form})" not in said:
        raise Failed(f"the installed wheel calls itself {said!r}, not {form} from {made_from}")


def release(dist: Path, pythons: Sequence[str]) -> list[Path]:
    """Writes all files; returns them."""
    made_from = commit()
    dist.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    bill = dist / "magnetar.cdx.json"
    with tempfile.TemporaryDirectory(prefix="magnetar-release-") as temporary:
        work = Path(temporary)
        staged = work / "source"
        stage(staged, made_from)
        for kind in ("build_sdist", "build_wheel"):
            name = run([sys.executable, "-c", _BUILD, kind, dist], staged).strip().splitlines()[-1]
            files.append(dist / name)
        pure = files[-1]
        for python in pythons:
            files.append(compiled_wheel(pure, staged, python, work, dist))
            inside = environment(work / "installed", python, [files[-1]])
            check(inside, made_from, "compiled")
            if python == pythons[0]:
                components(inside, bill)
        files += [bill, chart(dist)]
        run([inside, "-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps", pure], ROOT)
        check(inside, made_from, "interpreted")
    sums = dist / "SHA256SUMS"
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in sorted(files)]
    sums.write_text("".join(lines))
    return [*files, sums]


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/release.py", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--dist", type=Path, default=ROOT / "dist", help="folder of the files (default: dist)"
    )
    parser.add_argument(
        "--python", nargs="+", default=[], help="interpreters to compile for (default: every CPython found)"
    )
    options = parser.parse_args()
    try:
        for file in release(options.dist.resolve(), interpreters(options.python)):
            print(f"{file.stat().st_size:>12,}  {file.name}")
    except Failed as failure:
        sys.stderr.write(f"{failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
