"""Short forms of client values for error texts: enough to recognize a value of any size."""

from __future__ import annotations

from itertools import islice
from reprlib import Repr
from typing import Any


class _Shorter(Repr):
    def repr_dict(self, value: dict[Any, Any], level: int) -> str:
        """Shows the first items; :class:`reprlib.Repr` would sort all of them."""
        if not value or level <= 0:
            return "{...}" if value else "{}"
        pieces = [
            f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}"
            for key, item in islice(value.items(), self.maxdict)
        ]
        return f"{{{', '.join(pieces)}{', ...' if len(value) > self.maxdict else ''}}}"


_shorter = _Shorter()
_shorter.maxlist = _shorter.maxtuple = _shorter.maxdict = 6
_shorter.maxlevel = 3
_shorter.maxstring = _shorter.maxother = 200
_shorter.maxlong = 60


def shown(value: Any) -> str:
    """Returns a JSON value in Python's notation, in some hundreds of characters; ``...`` marks omissions."""
    return _shorter.repr(value)
