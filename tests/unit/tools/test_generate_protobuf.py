"""Modules are generated all together, or none is touched."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

import magnetar

sys.path.insert(0, str(Path(__file__).parents[3]))

from tools import generate_protobuf

pytest.importorskip("grpc_tools")

_REAL = Path(magnetar.__file__).parent.parent
_BEFORE = "what stood there\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """In a folder that has the definitions of all of them."""
    found = []
    for proto in generate_protobuf.PROTOS:
        (tmp_path / proto).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_REAL / proto, tmp_path / proto)
        module = tmp_path / proto.replace(".proto", "_pb2.py")
        module.write_text(_BEFORE)
        found.append(module)
    monkeypatch.setattr(generate_protobuf, "SOURCE", tmp_path)
    return found


def test_all_are_written_or_none_where_their_version_is_another(
    modules: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate_protobuf, "WANTED", "0.0")
    assert generate_protobuf.main() == 1
    told = re.search(r"for protobuf (\d+\.\d+)\.\d+, not 0\.0; use grpcio-tools", capsys.readouterr().err)
    assert told is not None
    assert {module.read_text() for module in modules} == {_BEFORE}
    assert not list(modules[0].parent.glob("*.pyi"))
    monkeypatch.setattr(generate_protobuf, "WANTED", told[1])
    assert generate_protobuf.main() == 0
    for module in modules:
        assert f"Protobuf Python Version: {told[1]}." in module.read_text()
        assert module.with_suffix(".pyi").exists()


def test_a_definition_that_is_none_leaves_all_as_it_is(modules: list[Path]) -> None:
    (modules[-1].parent / "bookie_protocol.proto").write_text("no definition")
    assert generate_protobuf.main() == 1
    assert {module.read_text() for module in modules} == {_BEFORE}
