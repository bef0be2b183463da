"""Describes the running code: its version, its commit, and whether hot modules run compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

from magnetar import __version__, hot
from magnetar.hot.forms import Form

_PACKAGE = Path(__file__).resolve().parent
COMMIT_FILE = "commit.txt"
"""The file in a released package that contains the commit from which the package was built."""


def commit() -> str:
    """Returns the commit of a released package or of a checkout, abbreviated; empty if it is not known."""
    recorded = _PACKAGE / COMMIT_FILE
    if recorded.exists():
        return recorded.read_text("utf-8").strip()
    checkout = _PACKAGE.parent.parent
    if not (checkout / ".git").exists():
        return ""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return ""
    return asked.stdout.strip() if asked.returncode == 0 else ""


def form() -> str:
    """Returns ``compiled`` if all hot modules of a broker run compiled, else ``interpreted``."""
    forms = hot.status(hot.SERVING).forms.values()
    return "compiled" if all(each is Form.COMPILED for each in forms) else "interpreted"


def description() -> str:
    """Returns one line, like ``magnetar 0.1.0 (commit 0123456789ab, compiled)``."""
    found = commit()
    return f"magnetar {__version__} ({f'commit {found}' if found else 'commit unknown'}, {form()})"


def install_extra(extra: str) -> str:
    """Returns a phrase that tells how to install an extra of this package; the package is on no package
    index.
    """
    return (
        f"install the extra {extra}: pip install '.[{extra}]' in a clone, or 'FILE.whl[{extra}]' "
        "(docs/install.md)"
    )
