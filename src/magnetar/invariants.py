"""Invariants: conditions that must hold inside an object, whatever was done to it.

Classes check their invariants in two ways. Checks that take constant time run at each change, in production
too: the change is followed by a comparison, and by :func:`violated` if it fails. The complete check is the
method ``check()``, which tests call after each action, and simulations after their steps.

A violation is a mistake in the program. Input from outside is validated before it reaches such a comparison.
The owner of the object (a topic, a connection) learns of the violation and ends; where acknowledged data is
at stake, the process stops. None of this uses ``assert``, so ``python -O`` keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


class BrokenInvariant(AssertionError):
    """An object contradicts itself: a mistake in the program, never in what it was given."""

    def __init__(self, what: str, expected: object = None, found: object = None) -> None:
        """:param what: the object, and the state that it must have
        :param expected: what must hold; None: ``what`` says it all
        :param found: what holds instead
        """
        super().__init__(what if expected is None else f"{what}: expected {expected}, found {found}")
        self.what = what
        self.expected = expected
        self.found = found
        self.owner_ends = False
        """Whether the object's owner was notified and ends; everything above the owner may then continue."""


Fail = Callable[[BaseException], object]
"""Begins the end of an owner, a topic or a connection, after a mistake in the program; the end comes in a
later turn of the loop. Later calls have no effect."""


def told(error: BaseException) -> dict[str, object]:
    """Returns the fields of a log line about an error.

    The field ``error`` is the message; a broken invariant with values adds ``expected`` and ``found``.
    """
    if isinstance(error, BrokenInvariant) and error.expected is not None:
        return {"error": error.what, "expected": str(error.expected), "found": str(error.found)}
    return {"error": str(error) or type(error).__name__}


def must(holds: bool, *what: object) -> None:
    """Raises an error unless a condition holds; for the complete checks that tests and simulations run.

    :raises BrokenInvariant: ``holds`` is false; the message is made from ``what``
    """
    if not holds:
        raise BrokenInvariant(" ".join(map(str, what)))


def violated(fail: Fail | None, what: str, expected: object, found: object) -> NoReturn:
    """Ends the owner of an object that a change has left in a forbidden state.

    Called only after a comparison beside the change has failed, so that the good case costs no call.

    :param fail: ends the owner; None: the code that catches the error ends what has to end
    :raises BrokenInvariant: always, so that the operation that made the change does not go on
    """
    error = BrokenInvariant(what, expected, found)
    if fail is not None:
        error.owner_ends = True
        fail(error)
    raise error
