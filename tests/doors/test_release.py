"""`make release`: its files install where there is no compiler, run compiled, and do what the tour shows."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from documented_shell import differing
from test_readme_commands import ROOT, clone, path_without_compilers

TOUR = ROOT / "docs" / "tour.md"


def _run(*command: object, cwd: Path, **environment: str) -> str:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("MAGNETAR_", "PYTHON"))}
    ended = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.mark.timeout(900)
def test_the_files_of_a_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout, dist = clone(tmp_path / "clone"), tmp_path / "dist"
    _run(sys.executable, "tools/release.py", "--dist", dist, "--python", sys.executable, cwd=checkout)

    names = {file.name for file in dist.iterdir()}
    [compiled] = [name for name in names if "manylinux_2_17" in name]
    [pure] = [name for name in names if name.endswith("-py3-none-any.whl")]
    [source] = [name for name in names if name.endswith(".tar.gz")]
    [chart] = [name for name in names if name.endswith(".tgz")]
    assert names == {compiled, pure, source, chart, "magnetar.cdx.json", "SHA256SUMS"}
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        digest, _, name = line.partition("  ")
        names.remove(name)
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest
    assert names == {"SHA256SUMS"}
    listed = json.loads((dist / "magnetar.cdx.json").read_text())
    assert listed["bomFormat"] == "CycloneDX"
    assert {"magnetar", "h11", "protobuf"} <= {each["name"] for each in listed["components"]}
    with tarfile.open(dist / chart) as packed:
        assert "magnetar/Chart.yaml" in packed.getnames()
    with tarfile.open(dist / source) as packed:
        tops = {name.partition("/")[2] for name in packed.getnames()}
    assert {"pyproject.toml", "src/magnetar/commit.txt", "src/magnetar/protocol/hot_decode.pxd"} <= tops

    outside = os.pathsep.join(
        path for path in os.environ["PATH"].split(os.pathsep) if Path(path) != Path(sys.executable).parent
    )
    monkeypatch.setenv("PATH", outside)
    monkeypatch.setenv("PATH", path_without_compilers(tmp_path / "commands"))
    _run(sys.executable, "-m", "venv", tmp_path / "installed", cwd=tmp_path)
    programs = tmp_path / "installed" / "bin"
    _run(programs / "pip", "install", "--quiet", dist / compiled, cwd=tmp_path)
    commit = _run("git", "rev-parse", "--short=12", "HEAD", cwd=checkout).strip()
    assert f"(commit {commit}, compiled)" in _run(programs / "magnetar", "--version", cwd=tmp_path)
    toured = tmp_path / "tour"
    toured.mkdir()
    wrong = differing(TOUR, toured, programs, 26)
    assert not wrong, "\n".join(wrong)
