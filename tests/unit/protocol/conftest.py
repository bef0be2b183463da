"""Both forms of the hot codec, and the recorded conversations."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from magnetar.hot import forms
from magnetar.protocol import hot_codec

_PARTS = ("magnetar.protocol.hot_decode", "magnetar.protocol.hot_encode")


def _interpreted(name: str) -> ModuleType:
    path = str(forms.source_path(name))
    loader = importlib.machinery.SourceFileLoader(f"interpreted_{name.rpartition('.')[2]}", path)
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def _compiled(name: str) -> ModuleType | None:
    if forms.form(name) is forms.Form.COMPILED:
        return importlib.import_module(name)
    path = forms.compiled_path(name)
    digest = forms.digest_path(name)
    if not path.exists() or not digest.exists() or digest.read_text().strip() != forms.source_digest(name):
        return None
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, str(path), loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _codec(parts: list[ModuleType]) -> SimpleNamespace:
    names = hot_codec.__all__
    return SimpleNamespace(
        **{name: getattr(part, name) for part in parts for name in names if hasattr(part, name)}
    )


_CODECS: dict[str, SimpleNamespace | None] = {"interpreted": _codec([_interpreted(name) for name in _PARTS])}
_compiled_parts = [_compiled(name) for name in _PARTS]
_CODECS["compiled"] = _codec([part for part in _compiled_parts if part]) if all(_compiled_parts) else None


@pytest.fixture(params=["interpreted", "compiled"], scope="session")
def codec(request: pytest.FixtureRequest) -> SimpleNamespace:
    """The names of ``hot_codec``, once interpreted and once compiled."""
    chosen = _CODECS[request.param]
    if chosen is None:
        pytest.skip("the hot modules are not compiled: python -m magnetar.hot build")
    return chosen


@pytest.fixture(scope="session")
def conversations() -> list[dict[str, Any]]:
    """Frames between the official Python client and Apache Pulsar; 64-bit numbers are strings."""
    text = (Path(__file__).parent / "data" / "conversations.json").read_text()
    frames: list[dict[str, Any]] = json.loads(text)["frames"]
    # Frames of chunked messages were recorded without their end.
    return [frame for frame in frames if not frame["hex"].endswith("...")]
