"""The hot codec in both forms, whichever of them this process runs."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
from types import ModuleType, SimpleNamespace

from magnetar.hot import forms
from magnetar.protocol import hot_codec

_PARTS = ("magnetar.protocol.hot_decode", "magnetar.protocol.hot_encode", "magnetar.protocol.hot_keys")


def interpreted(name: str) -> ModuleType:
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


def forms_of(name: str) -> dict[str, ModuleType | None]:
    """A hot module by form; None for the compiled one where it was not built from this source."""
    return {"interpreted": interpreted(name), "compiled": _compiled(name)}


_compiled_parts = [_compiled(name) for name in _PARTS]

CODECS: dict[str, SimpleNamespace | None] = {
    "interpreted": _codec([interpreted(name) for name in _PARTS]),
    "compiled": _codec([part for part in _compiled_parts if part]) if all(_compiled_parts) else None,
}
"""The names of ``hot_codec`` by form; None for the compiled one where it was not built from this source."""
