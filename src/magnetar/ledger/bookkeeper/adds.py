"""Entries that a writer of a ledger adds at one bookie, and which of them the bookie has answered for."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from magnetar.io.interfaces import Buffer
from magnetar.ledger.bookkeeper.hot_adds import Stripe


class AddListener(Protocol):
    """Whoever adds; called in the loop, never from within :meth:`Bookie.add_soon`."""

    def sending(self, stream: AddStream) -> tuple[Sequence[Buffer], int, int]:
        """What is to be added and was not asked for before: requests, the last entry, bytes of the requests.

        No bytes: there is nothing.
        """
        ...

    def on_added(self, stream: AddStream) -> None:
        """The bookie has stored some more: ``stream.stripe`` tells which."""
        ...

    def on_not_added(self, stream: AddStream, status: int) -> None:
        """The bookie has not stored all of them. It is told once; the stream has ended."""
        ...


class AddStream:
    """Entries in ascending order, those of ``stripe``; ended by the first one that is not stored.

    One that has ended stays with its bookie until its answers have come: they belong to nobody else who adds
    the same entries there.
    """

    __slots__ = ("_sent", "_sent_to", "_tells", "ended", "ledger_id", "listener", "stripe", "waits")

    def __init__(self, ledger_id: int, stripe: Stripe, listener: AddListener) -> None:
        self.ledger_id = ledger_id
        self.stripe = stripe
        self.listener = listener
        self.ended = False
        """Nothing more is added."""
        self.waits = False
        """There is something to be sent."""
        self._tells = True
        self._sent: deque[tuple[int, float, int]] = deque()
        """Of each run that is not answered for: its last entry, when it was sent, its bytes."""
        self._sent_to = -1

    @property
    def pending(self) -> bool:
        """Whether answers are missing."""
        return bool(self._sent)

    @property
    def oldest(self) -> float:
        """When the first of those without an answer was sent."""
        return self._sent[0][1]

    def leave(self) -> None:
        """Whoever adds does so elsewhere from now on and wants to hear no more."""
        self.ended = True
        self._tells = False

    def sent(self, last_entry_id: int, at: float, size: int) -> None:
        self._sent.append((last_entry_id, at, size))
        self._sent_to = last_entry_id

    def expects(self, entry_id: int) -> bool:
        """Whether an answer for it may come."""
        return self.stripe.next <= entry_id <= self._sent_to

    def done(self) -> int:
        """Bytes of those runs that are answered for by now, and were not the last time."""
        size = 0
        sent, after = self._sent, self.stripe.next
        while sent and sent[0][0] < after:
            size += sent.popleft()[2]
        return size

    def give_up(self) -> int:
        """No answers come any more, or they are of no use; bytes of the runs that had none."""
        self.ended = True
        size = sum(each[2] for each in self._sent)
        self._sent.clear()
        return size

    def tell_added(self) -> None:
        if not self.ended:
            self.listener.on_added(self)

    def tell_not_added(self, status: int) -> None:
        """Ends it."""
        self.ended = True
        if self._tells:
            self._tells = False
            self.listener.on_not_added(self, status)
