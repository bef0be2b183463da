"""Entries that a ledger's writer adds at one bookie, and how far the bookie has answered."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from magnetar.io.interfaces import Buffer
from magnetar.ledger.bookkeeper.hot_adds import Stripe


class AddListener(Protocol):
    """The owner of a stream of adds; called in the loop, never from within :meth:`Bookie.add_soon`."""

    def sending(self, stream: AddStream) -> tuple[Sequence[Buffer], int, int]:
        """Returns what is to be sent next: requests, the last entry, and bytes of the requests.

        0 bytes mean that there is nothing.
        """
        ...

    def on_added(self, stream: AddStream) -> None:
        """The bookie has stored more entries: see ``stream.stripe``."""
        ...

    def on_not_added(self, stream: AddStream, status: int) -> None:
        """The bookie has not stored all entries. Called once; the stream has ended."""
        ...


class AddStream:
    """The entries of ``stripe``, added in ascending order; the first entry that is not stored ends the
    stream.

    An ended stream stays with its bookie until its answers have come, so that they are not attributed to
    another stream that adds the same entries there.
    """

    __slots__ = ("_sent", "_sent_to", "_tells", "ended", "ledger_id", "listener", "stripe", "waits")

    def __init__(self, ledger_id: int, stripe: Stripe, listener: AddListener) -> None:
        self.ledger_id = ledger_id
        self.stripe = stripe
        self.listener = listener
        self.ended = False
        """Nothing more is added."""
        self.waits = False
        """Whether the stream is queued for sending."""
        self._tells = True
        self._sent: deque[tuple[int, float, int]] = deque()
        """For each unanswered run: the last entry, the time of sending, and the bytes."""
        self._sent_to = -1

    @property
    def pending(self) -> bool:
        """Whether answers are outstanding."""
        return bool(self._sent)

    @property
    def oldest(self) -> float:
        """The time when the oldest unanswered run was sent."""
        return self._sent[0][1]

    def leave(self) -> None:
        """Ends the stream without further callbacks; its owner adds elsewhere from now on."""
        self.ended = True
        self._tells = False

    def sent(self, last_entry_id: int, at: float, size: int) -> None:
        self._sent.append((last_entry_id, at, size))
        self._sent_to = last_entry_id

    def expects(self, entry_id: int) -> bool:
        """Whether an answer for the entry may come."""
        return self.stripe.next <= entry_id <= self._sent_to

    def done(self) -> int:
        """Returns the bytes of the runs that were answered since the last call."""
        size = 0
        sent, after = self._sent, self.stripe.next
        while sent and sent[0][0] < after:
            size += sent.popleft()[2]
        return size

    def give_up(self) -> int:
        """Ends the stream because no answers will come, or none are needed; returns the bytes of the
        unanswered runs."""
        self.ended = True
        size = sum(each[2] for each in self._sent)
        self._sent.clear()
        return size

    def tell_added(self) -> None:
        if not self.ended:
            self.listener.on_added(self)

    def tell_not_added(self, status: int) -> None:
        """Ends the stream."""
        self.ended = True
        if self._tells:
            self._tells = False
            self.listener.on_not_added(self, status)
