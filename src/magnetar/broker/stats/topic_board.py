"""A live list of all topics for the dashboard's page: ordered, filtered, one page at a time.

While no client watches, no data is kept and no work is done. Otherwise, the metrics of topics on open pages
are read every :data:`TICK_SECONDS`. The metrics of all other topics are read in turn, some topics at each
tick and busy topics more often; these metrics only decide on which page a topic belongs. An order of topics
is kept for :data:`ORDER_SECONDS`, so that sorting costs little and lines do not jump.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

from magnetar.broker.dispatch.waiting import AT_END, MOVING, READING, TURN
from magnetar.broker.flow.rates import ALL, Rate, latency_quantiles
from magnetar.broker.service import BrokerService
from magnetar.broker.stats.taken import replication_metrics
from magnetar.broker.subscriptions.base import BaseSubscription
from magnetar.broker.subscriptions.cursor_kinds import SUBSCRIPTION
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError, NamespaceNotFound, TooManyRequests
from magnetar.io.interfaces import Cancellable, Future
from magnetar.io.slices import PAUSE_SECONDS, each
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import finished, settle
from magnetar.lazy_dataclass import dataclass

log = logging.getLogger(__name__)
TICK_SECONDS = 2.0
LOOKS = 250
"""The number of topics that are read at each tick: up to this many busy topics, and this many of all topics,
so that reading 10,000 topics once takes 80 s."""
ORDER_SECONDS = 10.0
NAMES_SECONDS = 30.0
"""The time in seconds between two queries of the metadata store for topics that are not loaded.

Topics that this broker loads, closes or deletes lead to a query at the next tick."""
LINGER_SECONDS = 5.0
"""How long the data is kept after the last client has left, in seconds, because a page may be reloaded."""
MOST_NAMES = 200_000
"""The maximum number of names of topics that are not loaded; further names are left out."""
MOST_WATCHERS = 64
MOST_LINES = 100
"""The maximum number of lines of a page."""
LEAST_SECONDS = 1.0
"""The minimum time in seconds between two readings from which a rate is computed."""


class TopicOrder(Enum):
    """The order of the topics in the list."""

    NAME = "name"
    RATE_IN = "in"
    RATE_OUT = "out"
    BACKLOG = "backlog"
    WAITING = "waiting"
    """Topics whose subscriptions have waited longest come first."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A selection of topics and their order."""

    namespace: str = ""
    """The namespace; empty: all namespaces."""
    words: tuple[str, ...] = ()
    """Words in lower case; a topic is listed if its name contains each of them."""
    order: TopicOrder = TopicOrder.NAME
    stuck: bool = False
    """Whether only topics with a subscription that waits are listed."""


class TopicBoard:
    """The board of one broker. All methods run on the loop."""

    def __init__(self, broker: BrokerService) -> None:
        self._broker = broker
        self._io = broker.io
        self._lines: dict[str, Line] = {}
        self._asleep: Sequence[str] = ()
        """Names of topics that were not loaded at the last query of the metadata store."""
        self._orders: dict[Listed, tuple[float, Sequence[str]]] = {}
        self._turn: list[str] = []
        """The names of the topics to read in this round, the next one at the end; ``_busy_turn`` has the
        names of busy topics."""
        self._busy_turn: list[str] = []
        self._watchers = 0
        self._waiting: list[Future[None]] = []
        self._timer: Cancellable | None = None
        """The timer of the next tick; None: no client watches."""
        self._ending: Cancellable | None = None
        """The timer that drops the data after the last client has left."""
        self._scope = TaskScope(self._io.loop, "the topic board", owner_goes_on)
        self._tasks: KeyedTasks[str, None] = KeyedTasks(self._scope)
        self._names_at = float("-inf")
        self._loaded = 0
        """The number of topics that were loaded at the last tick."""
        self._deletions = 0
        """How many topics the broker had deleted at the last query of the metadata store."""
        self._published: list[int] = []
        """The counts of publish latencies, by bucket, that were read since the last tick."""
        self._latency: Sequence[float] = ()
        """The quantiles of the publish latencies that were read before the last tick; empty if no message was
        published."""
        self.ticks = 0

    # Watching

    def enter(self) -> None:
        """Registers a client, which watches until :meth:`leave` is called.

        :raises TooManyRequests: too many clients watch already
        """
        if self._watchers >= MOST_WATCHERS:
            raise TooManyRequests(f"{MOST_WATCHERS} pages already watch this broker; close one of them")
        self._watchers += 1
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        if self._timer is None:
            self.ticks += 1
            self._tasks.start("first look", self._look_at_all, "the first look")
            self._timer = self._broker.wheel.schedule(TICK_SECONDS, self._tick)

    async def looked(self) -> None:
        """Waits until every topic has been read once since the first client came."""
        looking = self._tasks.get("first look")
        if looking is not None:
            await finished(self._io.loop, looking)

    def leave(self) -> None:
        self._watchers -= 1
        if not self._watchers:
            self._ending = self._broker.wheel.schedule(LINGER_SECONDS, self._forget)

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._ending = None
        self._scope.cancel()
        # A client that comes now does not wait for a look that was cancelled.
        self._tasks = KeyedTasks(self._scope)
        self._lines, self._orders, self._asleep, self._waiting = {}, {}, (), []
        self._published, self._latency = [], ()
        self._turn, self._busy_turn = [], []

    @property
    def started_ms(self) -> int:
        """Returns the time when the broker started, in milliseconds since 1970."""
        return self._broker.started_ms

    @property
    def service_url(self) -> str:
        """The broker's URL for clients."""
        return self._broker.settings.service_url

    def history_of(self, topic: str) -> Mapping[str, object]:
        """Returns the history of a topic: messages per second in and out, and quantiles of its publish
        latency in ms, for each of the latest periods of statistics.
        """
        return self._told(topic)

    def latency_of(self, topic: str) -> Sequence[float | None]:
        """Returns the quantiles of a topic's publish latency in the last seconds, in ms.

        Empty if no message was published, or the topic is not loaded.
        """
        line = self._look(topic)
        return () if line is None else _rounded(latency_quantiles(line.newly_published))

    def replication_of(self, topic: str) -> Sequence[Mapping[str, object]]:
        """Returns the replication lag of each remote cluster; empty if the topic is not replicated, or not
        loaded."""
        loaded = self._broker.topics.loaded.get(topic)
        return () if loaded is None else replication_lags(loaded)

    def next_tick(self) -> Future[None]:
        """Returns a new future that is completed at the next tick, when the data is to be shown again."""
        waiting = self._io.loop.create_future()
        self._waiting.append(waiting)
        return waiting

    def _tick(self) -> None:
        self._timer = self._broker.wheel.schedule(TICK_SECONDS, self._tick)
        self.ticks += 1
        self._look_at_newcomers()
        if "first look" not in self._tasks:
            self._look_in_turn(self._busy_turn, lambda: [each.full_name for each in self._broker.topics.busy])
            self._look_in_turn(self._turn, lambda: list(self._broker.topics.loaded))
        self._latency, self._published = latency_quantiles(self._published), []
        now = self._io.clock.monotonic()
        self._orders = {key: known for key, known in self._orders.items() if now - known[0] < ORDER_SECONDS}
        if self._broker.topics.deletions != self._deletions:
            self._names_at = float("-inf")
        if now - self._names_at >= NAMES_SECONDS and not self._tasks:
            self._tasks.start("names", self._find_asleep, "the names of topics")
        waiting, self._waiting = self._waiting, []
        for each_of_them in waiting:
            settle(each_of_them)

    # Reading topics

    async def _look_at_all(self) -> None:
        names = list(self._broker.topics.loaded)
        self._loaded = len(names)
        await each(self._io, "topic board", names, self._look, pause=PAUSE_SECONDS)
        await self._find_asleep()
        self._orders = {}

    def _look_at_newcomers(self) -> None:
        """Adds new topics to the board and removes closed topics, without waiting for the next round."""
        nobody_watches = self._timer is None
        if nobody_watches or "first look" in self._tasks or len(self._broker.topics.loaded) == self._loaded:
            return
        self._loaded = len(self._broker.topics.loaded)
        self._forget_the_gone()
        for name in list(self._broker.topics.loaded.keys() - self._lines.keys())[:LOOKS]:
            self._look(name)
        self._orders = {}
        self._names_at = float("-inf")

    def _look_in_turn(self, turn: list[str], renewed: Callable[[], list[str]]) -> None:
        """Reads the next topics of a round, at most :data:`LOOKS`.

        :param turn: the names of the topics that are left in this round, the next one at the end
        :param renewed: returns the names of the topics for the next round
        """
        begun_anew = False
        for _ in range(LOOKS):
            if not turn:
                if begun_anew:
                    # There are so few that each had its turn in this tick.
                    return
                begun_anew = True
                turn += renewed()
                self._forget_the_gone()
                if not turn:
                    return
            self._look(turn.pop())

    def _forget_the_gone(self) -> None:
        gone = self._lines.keys() - self._broker.topics.loaded.keys()
        for name in gone:
            del self._lines[name]

    def _look(self, name: str) -> Line | None:
        """Reads a topic and returns its line; None if the topic is not loaded, or is a system topic."""
        topic = self._broker.topics.loaded.get(name)
        if topic is None or topic.name.reserved:
            self._lines.pop(name, None)
            return None
        line = self._lines.get(name)
        if line is None:
            line = self._lines[name] = Line(name, str(topic.name.namespace_name))
        now = self._io.clock.monotonic()
        look(line, topic, now)
        if line.at == now and line.newly_published:
            known = self._published or [0] * len(line.newly_published)
            self._published = [one + other for one, other in zip(known, line.newly_published, strict=True)]
        return line

    async def _find_asleep(self) -> None:
        self._names_at = self._io.clock.monotonic()
        self._deletions = self._broker.topics.deletions
        found: list[str] = []

        def take(name: str) -> None:
            if name not in self._broker.topics.loaded:
                found.append(name)

        try:
            for namespace in await self._broker.policies.all_namespaces():
                await each(self._io, "topic board", await self._names(namespace), take, pause=PAUSE_SECONDS)
                if len(found) >= MOST_NAMES:
                    break
        except BrokerError as error:
            log.warning("cannot list topics that are not loaded", exc_info=error)
            return
        if found != self._asleep:
            self._asleep = found
            self._orders = {}

    async def _names(self, namespace: str) -> Sequence[str]:
        try:
            return await self._broker.topic_names(namespace)
        except NamespaceNotFound:
            # The namespace was deleted meanwhile.
            return ()

    # Showing

    def page(self, listed: Listed, first: int, count: int) -> Mapping[str, object]:
        """Returns a page of the list of topics.

        :param first: the number of lines before the page
        :param count: the number of lines on the page, at most :data:`MOST_LINES`
        """
        self._look_at_newcomers()
        names = self._ordered(listed)
        shown: list[Mapping[str, object]] = []
        for name in names[first : first + min(count, MOST_LINES)]:
            line = self._look(name)
            shown.append({"topic": name, "loaded": False} if line is None else self._shown(line))
        return {"total": len(names), "first": first, "topics": shown}

    def _shown(self, line: Line) -> Mapping[str, object]:
        history = self._broker.upkeep.housekeeping.history.of(line.name)[0]
        return {**line.json(), "history": [round(rate, 2) for rate in history]}

    def history(self) -> Mapping[str, object]:
        """Returns the history of all topics together, like :meth:`history_of`."""
        return self._told(ALL)

    def _told(self, of: str) -> Mapping[str, object]:
        rates_in, rates_out = self._broker.upkeep.housekeeping.history.of(of)
        return {
            "seconds": self._broker.settings.stats_seconds,
            "in": [round(rate, 2) for rate in rates_in],
            "out": [round(rate, 2) for rate in rates_out],
            "latency": [_rounded(each) for each in self._broker.upkeep.housekeeping.latencies.of(of)],
        }

    def totals(self) -> Mapping[str, object]:
        """Returns counts and rates over all loaded topics, each as of its last reading; also the number of
        connections, and the quantiles of the publish latency."""
        lines = self._lines.values()
        return {
            "connections": len(self._broker.connections.all),
            "topics": len(lines),
            "notLoaded": len(self._asleep),
            "producers": sum(line.producers for line in lines),
            "consumers": sum(line.consumers for line in lines),
            "subscriptions": sum(line.subscriptions for line in lines),
            "waiting": sum(line.waiting for line in lines),
            "backlog": sum(line.backlog for line in lines),
            "rateIn": round(sum(line.rate_in for line in lines), 3),
            "rateOut": round(sum(line.rate_out for line in lines), 3),
            "throughputIn": round(sum(line.throughput_in for line in lines), 1),
            "throughputOut": round(sum(line.throughput_out for line in lines), 1),
            "latency": _rounded(self._latency),
        }

    def _ordered(self, listed: Listed) -> Sequence[str]:
        known = self._orders.get(listed)
        if known is not None:
            return known[1]
        lines: Iterable[Line] = self._lines.values()
        if listed.stuck:
            lines = (line for line in lines if line.waiting)
        if listed.namespace:
            lines = (line for line in lines if line.namespace == listed.namespace)
        chosen = [line for line in lines if _has(line.name, listed.words)]
        chosen.sort(key=_KEYS[listed.order])
        names = [line.name for line in chosen]
        if not listed.stuck:
            names += self._sleepers(listed)
            if listed.order is TopicOrder.NAME:
                names.sort()
        if len(self._orders) >= MOST_WATCHERS:
            # Drops the oldest order: there are no more pages than that.
            del self._orders[next(iter(self._orders))]
        self._orders[listed] = self._io.clock.monotonic(), names
        return names

    def _sleepers(self, listed: Listed) -> Sequence[str]:
        start = f"persistent://{listed.namespace}/" if listed.namespace else ""
        return [
            name
            for name in self._asleep
            if name.startswith(start) and name not in self._broker.topics.loaded and _has(name, listed.words)
        ]


def _rounded(milliseconds: Iterable[float | None]) -> list[float | None]:
    return [None if each is None else round(each, 3) for each in milliseconds]


def _has(name: str, words: Sequence[str]) -> bool:
    if not words:
        return True
    lower = name.lower()
    return all(word in lower for word in words)


_KEYS: Mapping[TopicOrder, Callable[[Line], tuple[float, str]]] = {
    TopicOrder.NAME: lambda line: (0, line.name),
    TopicOrder.RATE_IN: lambda line: (-line.rate_in, line.name),
    TopicOrder.RATE_OUT: lambda line: (-line.rate_out, line.name),
    TopicOrder.BACKLOG: lambda line: (-line.backlog, line.name),
    TopicOrder.WAITING: lambda line: (line.waiting_since_ms if line.waiting else float("inf"), line.name),
}


@dataclass(slots=True)
class Line:
    """One line of a list of topics: a topic as of its last reading; rates are per second."""

    name: str
    namespace: str
    at: float = 0.0
    """The time of the reading, in seconds of the monotonic clock."""
    counted: Rate | None = None
    """The topic's counter of incoming messages at this reading; a topic that was loaded again has another
    counter.
    """
    messages_in: int = 0
    messages_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    published: Sequence[int] = ()
    """The counts of publish latencies, by bucket, at this reading; empty for non-persistent topics."""
    newly_published: Sequence[int] = ()
    """The counts between this reading and the previous one; empty if no message was published."""
    rate_in: float = 0.0
    rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0
    backlog: int = 0
    producers: int = 0
    consumers: int = 0
    subscriptions: int = 0
    waiting: int = 0
    """The number of subscriptions with a backlog to which nothing is sent for a reason that does not pass by
    itself."""
    waiting_subscription: str = ""
    """The subscription with the largest backlog among the subscriptions that :attr:`waiting` counts; the next
    three attributes describe this subscription.
    """
    waiting_reason: str = ""
    waiting_since_ms: int = 0
    waiting_backlog: int = 0
    replication: Sequence[dict[str, object]] = ()
    """The result of :func:`replication_lags`."""

    def json(self) -> dict[str, object]:
        """Returns the line as JSON for the page."""
        found: dict[str, object] = {
            "topic": self.name,
            "rateIn": round(self.rate_in, 3),
            "rateOut": round(self.rate_out, 3),
            "throughputIn": round(self.throughput_in, 1),
            "throughputOut": round(self.throughput_out, 1),
            "backlog": self.backlog,
            "producers": self.producers,
            "consumers": self.consumers,
            "subscriptions": self.subscriptions,
        }
        if self.waiting:
            found["waiting"] = {
                "subscriptions": self.waiting,
                "subscription": self.waiting_subscription,
                "reason": self.waiting_reason,
                "since": self.waiting_since_ms,
                "backlog": self.waiting_backlog,
            }
        if self.replication:
            found["replication"] = self.replication
        return found


_PASSING = frozenset({AT_END, READING, TURN, MOVING})
"""The reasons for sending nothing that end without an action of a client or an operator."""


def look(line: Line, topic: AnyTopic, now: float) -> None:
    """Updates a line from its topic. Rates are averages since the last reading; the first reading after the
    load of the topic takes the rates of the topic's statistics.

    :param now: seconds of the monotonic clock
    """
    rate_in, rate_out = topic.rate_in, topic.rate_out
    passed = now - line.at
    first = line.counted is not rate_in
    if first:
        line.rate_in, line.rate_out = rate_in.per_second, rate_out.per_second
        line.throughput_in, line.throughput_out = rate_in.bytes_per_second, rate_out.bytes_per_second
    elif passed >= LEAST_SECONDS:
        line.rate_in = (rate_in.messages - line.messages_in) / passed
        line.rate_out = (rate_out.messages - line.messages_out) / passed
        line.throughput_in = (rate_in.bytes - line.bytes_in) / passed
        line.throughput_out = (rate_out.bytes - line.bytes_out) / passed
    if first or passed >= LEAST_SECONDS:
        line.at, line.counted = now, rate_in
        line.messages_in, line.bytes_in = rate_in.messages, rate_in.bytes
        line.messages_out, line.bytes_out = rate_out.messages, rate_out.bytes
        if isinstance(topic, Topic):
            before, line.published = line.published, topic.write_latency.counts[:]
            same = first or before == line.published
            line.newly_published = (
                () if same else [now - then for now, then in zip(line.published, before, strict=True)]
            )
    line.producers = len(topic.producers) - topic.producers.remote
    line.consumers = topic.subscriptions.consumer_count()
    line.replication = replication_lags(topic)
    _look_at_subscriptions(line, topic.subscriptions.values())


def _look_at_subscriptions(line: Line, subscriptions: Iterable[BaseSubscription]) -> None:
    line.subscriptions = line.backlog = line.waiting = line.waiting_backlog = 0
    for subscription in subscriptions:
        if subscription.kind is not SUBSCRIPTION:
            continue
        line.subscriptions += 1
        backlog = subscription.backlog()
        if not backlog:
            continue
        line.backlog += backlog
        reason = subscription.why_not()
        if reason in _PASSING:
            continue
        line.waiting += 1
        if backlog > line.waiting_backlog:
            line.waiting_backlog = backlog
            line.waiting_subscription = subscription.name
            line.waiting_reason = reason.value
            line.waiting_since_ms = subscription.waits_since_ms()


def replication_lags(topic: AnyTopic) -> Sequence[dict[str, Any]]:
    """Returns the replication lag of each remote cluster, the largest first; empty if the topic is not
    replicated.

    ``lagSeconds`` is the age of the oldest entry that the cluster has not confirmed, ``backlog`` counts such
    entries; both are 0 for non-persistent topics.
    """
    if not topic.replicators:
        return ()
    lags = [
        {
            "cluster": each.remote,
            "connected": each.connected,
            "lagSeconds": round(each.lag_seconds, 1),
            "backlog": each.backlog,
        }
        for each in replication_metrics(topic)
    ]
    return sorted(lags, key=lambda lag: (-lag["lagSeconds"], -lag["backlog"], lag["cluster"]))
