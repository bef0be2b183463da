"""The limit on unacknowledged messages of all shared subscriptions of the broker together.

Once it is reached, subscriptions with more than their share of it are sent nothing more, until less than half
of the limit, or of their share, is unacknowledged.
"""

from __future__ import annotations

from typing import Protocol

from magnetar.invariants import must


class CountedDispatcher(Protocol):
    """``dispatch.many.ManyConsumersDispatcher``, in a layer above this one."""

    unacked: int

    def hold(self) -> None:
        """Stops sending."""
        ...

    def let_go_on(self) -> None:
        """Resumes sending, in the loop's next turn at the earliest."""
        ...


class UnackedLimit:
    """Dispatchers report every change of their unacknowledged messages."""

    def __init__(self, most: int, share: float) -> None:
        """:param most: messages, above 0

        :param share: the part of it that one subscription may have once it is reached, 0 to 1
        """
        self.most = most
        self._per_dispatcher = int(most * share)
        self._counted: dict[CountedDispatcher, int] = {}
        self._held: dict[CountedDispatcher, None] = {}
        self.total = 0
        self.reached = False

    def changed(self, dispatcher: CountedDispatcher) -> None:
        """Updates the count of a dispatcher."""
        now = dispatcher.unacked
        self.total += now - self._counted.pop(dispatcher, 0)
        if now:
            self._counted[dispatcher] = now
        if not self.reached:
            if self.total >= self.most:
                self.reached = True
                for each, unacked in self._counted.items():
                    self._hold_beyond_share(each, unacked)
        elif self.total < self.most / 2:
            self.reached = False
            for each in list(self._held):
                self._let_go_on(each)
        elif dispatcher not in self._held:
            self._hold_beyond_share(dispatcher, now)
        elif now < self._per_dispatcher / 2 or not now:
            self._let_go_on(dispatcher)

    def _hold_beyond_share(self, dispatcher: CountedDispatcher, unacked: int) -> None:
        if unacked > self._per_dispatcher:
            self._held[dispatcher] = None
            dispatcher.hold()

    def _let_go_on(self, dispatcher: CountedDispatcher) -> None:
        del self._held[dispatcher]
        dispatcher.let_go_on()

    def check(self) -> None:
        """:raises BrokenInvariant: the total is not the sum over the dispatchers"""
        must(self.total == sum(self._counted.values()), self.total, "of", sum(self._counted.values()))
        for dispatcher, counted in self._counted.items():
            must(dispatcher.unacked == counted, counted, "are counted of", dispatcher.unacked)
        must(self.reached or not self._held, "somebody is held back though the bound is not reached")
