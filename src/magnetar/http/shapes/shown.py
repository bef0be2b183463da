"""What a client sent, as an error shows it: enough to recognize it, however large it is."""

from __future__ import annotations

from reprlib import Repr
from typing import Any

_shorter = Repr()
_shorter.maxlist = _shorter.maxtuple = _shorter.maxdict = 6
_shorter.maxlevel = 3
_shorter.maxstring = _shorter.maxother = 200
_shorter.maxlong = 60


def shown(value: Any) -> str:
    """A JSON value in some hundreds of characters, as Python writes it; ``...`` is for what is left out."""
    return _shorter.repr(value)
