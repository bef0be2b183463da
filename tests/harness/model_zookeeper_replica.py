"""What one server of a model ensemble has heard of so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from copy import deepcopy

from model_zookeeper_tree import ModelNode, Transaction, apply

from magnetar.io.interfaces import Loop


class Replica:
    """Applies transactions in their order, some time after they were committed."""

    def __init__(
        self,
        loop: Loop,
        nodes: dict[str, ModelNode],
        zxid: int,
        on_applied: Callable[[Replica, Transaction], None],
        lag: Callable[[], float] | None = None,
    ) -> None:
        """:param nodes: as they are after ``zxid``

        :param lag: draws how many seconds it hears of a transaction late; None: it never does, and ``nodes``
            are changed by whoever commits
        """
        self.nodes = nodes if lag is None else deepcopy(nodes)
        self.zxid = zxid
        self._loop = loop
        self._on_applied = on_applied
        self._lag = lag
        self._heard: deque[Transaction] = deque()
        self._until = 0.0

    def hear(self, transaction: Transaction) -> None:
        if self._lag is None:
            self._done(transaction)
            return
        self._heard.append(transaction)
        now = self._loop.time()
        self._until = max(self._until, now + self._lag())
        self._loop.call_later(self._until - now, self._apply_next)

    def settle(self, loop: Loop) -> None:
        """Hears of everything at once, and goes on in another loop."""
        while self._heard:
            self._apply_next()
        self._loop, self._until = loop, 0.0

    def _apply_next(self) -> None:
        if self._heard:
            transaction = self._heard.popleft()
            apply(self.nodes, transaction)
            self._done(transaction)

    def _done(self, transaction: Transaction) -> None:
        self.zxid = transaction.zxid
        self._on_applied(self, transaction)
