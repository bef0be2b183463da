"""Invariants: conditions that must hold inside an object after any sequence of operations.

Classes check their invariants in two ways. Checks that take constant time run after each change, also in
production: the code compares, and calls :func:`violated` if the comparison fails. The method ``check()``
checks all invariants; tests call it after each action, and simulations after each step.

A violation is a mistake in the program, because input from outside is validated before such a comparison. The
owner of the object (a topic or a connection) is notified of the violation and closes; if acknowledged data is
at risk, the process stops. The checks do not use ``assert``, so they also run with ``python -O``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn


class BrokenInvariant(AssertionError):
    """The state of an object is inconsistent, because of a mistake in the program; invalid input is never the
    cause.
    """

    def __init__(self, what: str, expected: object = None, found: object = None) -> None:
        """:param what: the object, and the state that it must have
        :param expected: the expected value; None: ``what`` describes it
        :param found: the actual value
        """
        super().__init__(what if expected is None else f"{what}: expected {expected}, found {found}")
        self.what = what
        self.expected = expected
        self.found = found
        self.owner_ends = False
        """Whether the object's owner was notified and closes; the parts of the process that use the owner may
        then continue.
        """


Fail = Callable[[BaseException], object]
"""Begins to close an owner (a topic or a connection) after a mistake in the program; the owner closes in a
later iteration of the event loop. Further calls have no effect.
"""


def told(error: BaseException) -> dict[str, object]:
    """Returns the fields of a log line about an error.

    The field ``error`` is the message; the fields ``expected`` and ``found`` are added for a
    :class:`BrokenInvariant` that has these values.
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
    """Closes the owner of an object that is in a forbidden state after a change.

    The code that makes the change compares first and calls this function only if the comparison fails, so
    that a correct change costs no call.

    :param fail: closes the owner; None: the code that catches the error closes the objects concerned
    :raises BrokenInvariant: always, so that the operation that made the change does not continue
    """
    error = BrokenInvariant(what, expected, found)
    if fail is not None:
        error.owner_ends = True
        fail(error)
    raise error
