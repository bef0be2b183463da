"""What must hold inside an object whatever was done to it.

Classes with state that belongs together have a ``check()``: tests call it after each action, and simulations
after their steps.
"""

from __future__ import annotations


class BrokenInvariant(AssertionError):
    """An object contradicts itself: a mistake in the program, never in what it was given."""


def must(holds: bool, *what: object) -> None:
    """:raises BrokenInvariant: it does not hold; the text is ``what``"""
    if not holds:
        raise BrokenInvariant(" ".join(map(str, what)))
