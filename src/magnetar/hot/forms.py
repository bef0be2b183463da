"""The form in which hot modules run, and the files of compiled forms and hashes."""

from __future__ import annotations

import importlib.machinery
import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent.parent
_SUFFIX = importlib.machinery.EXTENSION_SUFFIXES[0]


class Form(Enum):
    """How a hot module runs, or would run if imported now."""

    COMPILED = "compiled"
    FORCED = "interpreted, because MAGNETAR_PURE is set"
    ABSENT = "interpreted, not compiled"
    STALE = "interpreted, compiled from another source"


def source_path(module: str) -> Path:
    """Returns the .py file of a module of this package; it need not exist."""
    return _PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")


def compiled_path(module: str, package: Path | None = None) -> Path:
    """Returns the path of a module's compiled form for this interpreter.

    :param package: a ``magnetar`` package folder; None: the running one
    """
    return (package or _PACKAGE) / "_compiled" / (module + _SUFFIX)


def digest_path(module: str, package: Path | None = None) -> Path:
    """Returns the path of the file with the hash of the source from which the compiled form was made."""
    return (package or _PACKAGE) / "_compiled" / (module + _SUFFIX + ".sha256")


def source_digest(module: str) -> str:
    """Returns the SHA-256, in hex, of everything that a compiled form is made from.

    :raises FileNotFoundError: the source does not exist
    """
    source = source_path(module)
    types = source.with_suffix(".pxd")
    digest = sha256(source.read_bytes())
    digest.update(b"\0")
    if types.exists():
        digest.update(types.read_bytes())
    return digest.hexdigest()


def form(module: str) -> Form:
    """Returns the form in which ``module`` runs."""
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
class HotStatus:
    """The form of each hot module whose source exists."""

    forms: dict[str, Form]
    stale_told: bool = False
    """Whether a warning about a stale module was given when the module was imported."""

    def warning(self) -> str | None:
        """Returns a line for the log if modules run interpreted; None: all modules are compiled, or the user
        has already been warned.
        """
        told = (Form.COMPILED, Form.STALE) if self.stale_told else (Form.COMPILED,)
        slow = {module: form for module, form in self.forms.items() if form not in told}
        if not slow:
            return None
        reasons = sorted({form.value for form in slow.values()})
        return (
            f"{len(slow)} of {len(self.forms)} hot modules run {'; '.join(reasons)}:"
            " expect a third of the throughput (python -m magnetar.hot build compiles them)"
        )


def status(modules: Iterable[str], stale_told: bool = False) -> HotStatus:
    """Returns how these hot modules run in this process."""
    return HotStatus({module: form(module) for module in modules if source_path(module).exists()}, stale_told)
