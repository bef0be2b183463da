"""Limits over all connections: their number, publishes in flight, partial frames, unacknowledged messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from magnetar.errors import BrokerError, NotAllowed
from magnetar.invariants import must, violated
from magnetar.io.interfaces import Loop
from magnetar.io.waiting import report

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection, Input


log = logging.getLogger(__name__)


def of_host(address: str, clients: Iterable[str]) -> int:
    """Returns the number of client addresses with the same host as ``address``."""
    host = address.rpartition(":")[0]
    return sum(client.rpartition(":")[0] == host for client in clients)


class ConnectionCounts:
    """All connections, with Pulsar's limits on their total and on the connections from one address; 0: no
    limit."""

    def __init__(self, max_connections: int, max_per_address: int) -> None:
        self._max = max_connections
        self._max_per_address = max_per_address
        self.all: dict[Connection, None] = {}
        """The connections in order of arrival; a set would have another order in each process."""
        self._per_address: dict[str, int] = {}
        self.created = 0
        self.closed_count = 0
        self.handshakes = 0
        self.unauthenticated = 0
        """The number of failed authentications of clients."""
        self.refused = 0

    def opened(self, connection: Connection) -> BrokerError | None:
        """Counts a connection; returns an error if it exceeds a limit and must be closed, otherwise None."""
        self.created += 1
        self.all[connection] = None
        count = self._per_address.get(connection.host, 0) + 1
        self._per_address[connection.host] = count
        if self._max and len(self.all) > self._max:
            self.refused += 1
            return NotAllowed("Reached the maximum number of connections")
        if self._max_per_address and count > self._max_per_address:
            self.refused += 1
            return NotAllowed("Reached the maximum number of connections on address " + connection.host)
        return None

    def closed(self, connection: Connection) -> None:
        if connection not in self.all:
            return
        del self.all[connection]
        self.closed_count += 1
        left = self._per_address.get(connection.host, 0) - 1
        if left > 0:
            self._per_address[connection.host] = left
        else:
            self._per_address.pop(connection.host, None)
            if left < 0:
                violated(connection.fail, f"connections from {connection.host}", "at least 0", left)

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the counts differ from the connections
        """
        counts = self._per_address.values()
        must(sum(counts) == len(self.all), sum(counts), "connections of addresses,", len(self.all), "in all")
        must(all(count > 0 for count in counts), "an address without a connection is kept")


class PublishBuffer:
    """The bytes of publishes that are not durable yet. Above the limit, connections that publish are not
    read."""

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self.used = 0
        self._paused: dict[Connection, None] = {}

    def use(self, max_bytes: int) -> None:
        """Changes the limit; paused connections resume if at most half of the new limit is used."""
        self._max = max_bytes
        self.shrank(0)

    def holds(self, connection: Connection) -> bool:
        """Whether reading of a connection is paused because of the limit."""
        return connection in self._paused

    def grew(self, connection: Connection, size: int) -> None:
        self.used += size
        if self.used > self._max and connection not in self._paused:
            self._paused[connection] = None
            connection.input.pause()

    def shrank(self, size: int) -> int:
        """Subtracts bytes that became durable; returns the bytes that are not durable yet. A negative result
        is an internal error, after which the caller must close its connection."""
        self.used = left = self.used - size
        if self._paused and self.used <= self._max // 2:
            paused = list(self._paused)
            self._paused.clear()
            for connection in paused:
                connection.input.resume()
        return left

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: more bytes became durable than were published
        """
        must(self.used >= 0, self.used, "bytes that are not durable")
        must(self.used > 0 or not self._paused, "a connection waits though everything is durable")


class PartialFrames:
    """The bytes of incomplete frames.

    Above the limit, the connections with the oldest incomplete frames are not read. These connections keep
    their bytes, while newer connections, which may be well-behaved, continue and add to the total. At one and
    a half times the limit, the connections with the oldest incomplete frames are closed. A connection that
    stays paused appears silent, so its keep-alive finally closes it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self._end = max_bytes + max_bytes // 2
        self.used = 0
        self._sizes: dict[Connection, int] = {}
        self._paused: dict[Connection, None] = {}

    def grew(self, connection: Connection, size: int) -> None:
        self._sizes[connection] = self._sizes.get(connection, 0) + size
        self.used += size
        if self.used <= self._max:
            return
        if self.used > self._end:
            self._close_oldest(connection)
        held = 0
        for oldest, kept in self._sizes.items():
            if held >= self.used - self._max:
                break
            held += kept
            if oldest not in self._paused and len(self._paused) + 1 < len(self._sizes):
                self._paused[oldest] = None
                oldest.input.pause()

    def _close_oldest(self, growing: Connection) -> None:
        for oldest in list(self._sizes):
            if self.used <= self._end:
                break
            if oldest is not growing:
                log.warning("closing the connection with the oldest partial frame peer=%s", oldest.host)
                oldest.close()

    def gone(self, connection: Connection) -> None:
        self.used -= self._sizes.pop(connection, 0)
        if self.used < 0:
            found, self.used = self.used, sum(self._sizes.values())
            violated(connection.fail, "bytes of partial frames", "at least 0", found)
        if connection in self._paused:
            del self._paused[connection]
            connection.input.resume()
        while self._paused and self.used <= self._max:
            oldest = next(iter(self._paused))
            del self._paused[oldest]
            oldest.input.resume()

    def check(self) -> None:
        """Checks invariants.

        :raises BrokenInvariant: the total is not the sum over the connections
        """
        must(self.used == sum(self._sizes.values()), self.used, "bytes of", sum(self._sizes.values()))
        must(self._paused.keys() <= self._sizes.keys(), "a connection waits that holds nothing")


class Readable:
    """The connections whose reading resumes: in the loop's next turn, never within the call that makes room
    for them.

    Completed writes and sent answers are reported in the middle of other work: a ledger iterates over the
    entries of a commit, or a topic over its subscriptions. Handling input at that time would publish to the
    same ledgers before that work is done.

    One callback per turn serves all connections, in the order of arrival.
    """

    __slots__ = ("_loop", "_row")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._row: dict[Input, None] = {}

    def add(self, connection: Input) -> None:
        """Resumes a connection in the next turn; repeated calls have no effect."""
        if not self._row:
            self._loop.call_soon(self._serve)
        self._row[connection] = None

    def _serve(self) -> None:
        row, self._row = self._row, {}
        for connection in row:
            try:
                connection.read_on()
            except Exception as error:  # noqa: BLE001 - reported; the other connections are still read
                report(self._loop, connection.read_on, error)


class CountedDispatcher(Protocol):
    """The methods of ``dispatch.many.ManyConsumersDispatcher``, in a higher layer, that the limit calls."""

    unacked: int

    def hold(self) -> None:
        """Stops sending."""
        ...

    def let_go_on(self) -> None:
        """Resumes sending, in the loop's next turn at the earliest."""
        ...

    def fail(self, error: BaseException) -> None:
        """Closes the topic after an internal error."""
        ...


class UnackedLimit:
    """The limit on unacknowledged messages of all shared subscriptions of the broker together.

    Once the limit is reached, a subscription with more than its share of the limit receives nothing more,
    until less than half of the limit, or less than half of its share, is unacknowledged. Dispatchers report
    every change of their unacknowledged messages.
    """

    def __init__(self, most: int, share: float) -> None:
        """:param most: the maximum number of messages, above 0

        :param share: the fraction of ``most``, 0 to 1, that one subscription may have once ``most`` is
            reached
        """
        self.most = most
        self._per_dispatcher = int(most * share)
        self._counted: dict[CountedDispatcher, int] = {}
        self._held: dict[CountedDispatcher, None] = {}
        self.total = 0
        self.reached = False

    def changed(self, dispatcher: CountedDispatcher) -> None:
        """Counts a dispatcher's unacknowledged messages again, and holds or resumes dispatchers."""
        now = dispatcher.unacked
        self.total += now - self._counted.pop(dispatcher, 0)
        if now:
            self._counted[dispatcher] = now
        if now < 0 or self.total < 0:
            found = now, self.total
            self._counted[dispatcher] = max(0, now)
            self.total = sum(self._counted.values())
            what = "unacknowledged messages of a subscription, and of all of the broker"
            violated(dispatcher.fail, what, "at least 0", found)
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
        """Checks invariants.

        :raises BrokenInvariant: the total is not the sum over the dispatchers
        """
        must(self.total == sum(self._counted.values()), self.total, "of", sum(self._counted.values()))
        for dispatcher, counted in self._counted.items():
            must(dispatcher.unacked == counted, counted, "are counted of", dispatcher.unacked)
        must(self.reached or not self._held, "somebody is held back though the bound is not reached")
