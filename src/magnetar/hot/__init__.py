"""Hot modules: plain Python that also runs compiled, when the compiled form was made from the same source.

``python -m magnetar.hot build`` compiles them into ``magnetar/_compiled``, each with the hash of its source.
The finder installed here loads a compiled form only if that hash still fits and ``MAGNETAR_PURE`` is not 1;
otherwise the source runs interpreted, with one warning if a compiled form is there but stale.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import ModuleType

MODULES = (
    "magnetar.ledger.embedded.group",
    "magnetar.protocol.hot_decode",
    "magnetar.protocol.hot_encode",
)
"""All hot modules; the only list of them."""

_PACKAGE = Path(__file__).resolve().parent.parent
_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


class Form(Enum):
    """How a hot module runs, or would run if imported now."""

    COMPILED = "compiled"
    FORCED = "interpreted, as MAGNETAR_PURE asks"
    ABSENT = "interpreted, not compiled"
    STALE = "interpreted, compiled from another source"


def source_path(module: str) -> Path:
    """The .py file of a module of this package; it need not exist."""
    return _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")


def compiled_path(module: str, package: Path | None = None) -> Path:
    """Where the compiled form belongs, for this interpreter."""
    return (package or _PACKAGE) / "_compiled" / (module + _SUFFIX)


def digest_path(module: str, package: Path | None = None) -> Path:
    """Where the hash of the source it was compiled from is kept."""
    return (package or _PACKAGE) / "_compiled" / (module + _SUFFIX + ".sha256")


def source_digest(module: str) -> str:
    """SHA-256, in hex, over everything a compiled form is made from.

    :raises FileNotFoundError: there is no such source
    """
    from hashlib import sha256

    source = source_path(module)
    types = source.with_suffix(".pxd")
    digest = sha256(source.read_bytes())
    digest.update(b"\0")
    if types.exists():
        digest.update(types.read_bytes())
    return digest.hexdigest()


def form(module: str) -> Form:
    """How ``module`` runs."""
    if os.environ.get("MAGNETAR_PURE") == "1":
        return Form.FORCED
    try:
        recorded = digest_path(module).read_text().strip()
    except FileNotFoundError:
        return Form.ABSENT
    if recorded != source_digest(module) or not compiled_path(module).exists():
        return Form.STALE
    return Form.COMPILED


@dataclass(frozen=True)
class Status:
    """The form of each hot module whose source exists."""

    forms: dict[str, Form]

    def warning(self) -> str | None:
        """One line for the log when something runs interpreted; None when all is compiled."""
        slow = {module: form for module, form in self.forms.items() if form is not Form.COMPILED}
        if not slow:
            return None
        reasons = sorted({form.value for form in slow.values()})
        return (
            f"{len(slow)} of {len(self.forms)} hot modules run {'; '.join(reasons)}:"
            " expect a third of the throughput (python -m magnetar.hot build compiles them)"
        )


def status() -> Status:
    """How the hot modules run in this process."""
    return Status({module: form(module) for module in MODULES if source_path(module).exists()})


class _Finder:
    """Finds the compiled forms; everything else is left to the finders behind it."""

    def __init__(self) -> None:
        self._warned = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in MODULES or not source_path(name).exists():
            return None
        found = form(name)
        if found is Form.STALE and not self._warned:
            self._warned = True
            logging.getLogger(__name__).warning(
                "%s was compiled from another source and runs interpreted; python -m magnetar.hot build", name
            )
        if found is not Form.COMPILED:
            return None
        file = str(compiled_path(name))
        loader = importlib.machinery.ExtensionFileLoader(name, file)
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def install() -> None:
    """Puts the finder before all others; once for the process."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
