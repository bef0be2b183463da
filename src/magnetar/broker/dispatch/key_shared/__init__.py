"""Key_Shared subscriptions: all messages of a key go to one consumer, in order.

The hash of a key is its *slot*, and each consumer has some of the slots:

* ``ranges`` divides the slots among the consumers of a subscription, by one of three rules;
* ``consumer`` knows which slots a consumer has, which entries it holds in each slot, and which slots still
  drain, that is, were reassigned while their former consumer held entries in them;
* ``replay`` keeps the entries that wait, with their slots;
* ``dispatcher`` chooses the consumer of each entry. Compiled functions hash the keys of a run and group its
  entries by consumer (``magnetar.protocol.hot_keys``).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Protocol

from magnetar.lazy_dataclass import dataclass

Range = tuple[int, int]
"""First and last slot, both included."""


class KeySharedMode(IntEnum):
    """``KeySharedMode`` of SUBSCRIBE."""

    AUTO_SPLIT = 0
    STICKY = 1


@dataclass(frozen=True, slots=True)
class KeySharedPolicy:
    """The Key_Shared policy with which a consumer joins."""

    mode: KeySharedMode = KeySharedMode.AUTO_SPLIT
    ranges: Sequence[Range] = ()
    """The slots that a STICKY consumer requests."""
    allow_out_of_order: bool = False
    """Whether messages of a key may overtake each other when consumers join or leave."""


class KeyedMember(Protocol):
    """A consumer to which slots are assigned."""

    name: str
    policy: KeySharedPolicy
