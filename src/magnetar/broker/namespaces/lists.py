"""Lists of topics that clients watch: the topics of a namespace that match a pattern, with updates (PIP-145).

Watchers of the same pattern in the same namespace share one list. The metadata store reports each topic that
is created or deleted; only lists of its namespace are updated, and no namespace is listed again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from magnetar.broker.namespaces.registry import Namespaces
from magnetar.errors import MetadataFailure, NamespaceNotFound, NotAllowed, TooManyRequests
from magnetar.io.interfaces import Cancellable, Io, Loop, Task
from magnetar.io.slices import each
from magnetar.io.tasks import TaskScope, owner_goes_on
from magnetar.io.waiting import finished, outcome
from magnetar.io.wheel import TimerWheel
from magnetar.managed_ledger.records import ROOT
from magnetar.metadata.interface import Change, ChangeKind, MetadataError, MetadataStore, SessionEvent
from magnetar.naming.hashes import sorted_topic_list_hash
from magnetar.naming.name_rules import InvalidName
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import Domain, Matches, TopicName, compile_pattern, decode_path_piece
from magnetar.protocol.frames import unsigned
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security.authentication import BROKER, Principal

if TYPE_CHECKING:
    from magnetar.broker.connections.connection import Connection


log = logging.getLogger(__name__)
SECONDS_PER_NAME = 1e-6
"""The delay of an update, per name in the list, during which further changes are gathered. An update carries
a hash of all names; with this delay, computing hashes takes at most a few percent of the time."""
MAX_HELD = 4_000_000
"""The maximum number of names in all lists together. Each list counts as :data:`_LIST_PRICE` more names, and
each watcher as :data:`_WATCHER_PRICE`."""
_LIST_PRICE = 100
_WATCHER_PRICE = 30
_RETRY_SECONDS = 1.0
"""The time until a failed comparison of a list is tried again, in seconds."""


Watcher: TypeAlias = "tuple[Connection, int]"


class TopicList:
    """The topics of a namespace that match a pattern."""

    def __init__(self, key: tuple[str, str], namespace: NamespaceName, matches: Matches) -> None:
        self.key = key
        self.namespace = namespace
        self.matches = matches
        self.names: list[str] = []
        """The full names of the topics, sorted."""
        self.watchers: dict[Watcher, None] = {}
        self.users = 0
        """The number of watchers, including watchers that are about to be added."""
        self.early: list[tuple[str, bool]] | None = []
        """Changes (the name, and whether the topic exists now) that arrive while topics are being listed;
        None at other times.
        """
        self.loading: Task[None] | None = None
        self.renewing: Cancellable | None = None
        """A task that compares the list with the existing topics, because notifications may have been
        lost."""
        self.flushing: Cancellable | None = None
        self._new: dict[str, None] = {}
        self._deleted: dict[str, None] = {}

    def change(self, name: str, exists: bool) -> int:
        """Applies the creation or deletion of a topic; returns the change in the number of names.

        :param exists: whether the topic exists now
        """
        index = bisect_left(self.names, name)
        known = index < len(self.names) and self.names[index] == name
        if known == exists:
            return 0
        appears, vanishes = (self._new, self._deleted) if exists else (self._deleted, self._new)
        if name in vanishes:
            # No watcher has been told of it yet.
            del vanishes[name]
        else:
            appears[name] = None
        if exists:
            self.names.insert(index, name)
            return 1
        del self.names[index]
        return -1

    @property
    def has_news(self) -> bool:
        return bool(self._new or self._deleted)

    def digest(self) -> str:
        return sorted_topic_list_hash(self.names)

    def flush(self) -> None:
        """Sends all watchers the changes since the last update."""
        if self.flushing is not None:
            self.flushing.cancel()
            self.flushing = None
        if not self.has_news:
            return
        command = BaseCommand(type=BaseCommand.WATCH_TOPIC_UPDATE)
        update = command.watchTopicUpdate
        update.new_topics.extend(self._new)
        update.deleted_topics.extend(self._deleted)
        update.topics_hash = self.digest()
        self.forget_news()
        for connection, watcher_id in self.watchers:
            update.watcher_id = unsigned(watcher_id)
            connection.send(command)

    def forget_news(self) -> None:
        self._new.clear()
        self._deleted.clear()


class TopicLists:
    """The topic lists that clients of this broker watch."""

    def __init__(
        self,
        io: Io,
        wheel: TimerWheel,
        namespaces: Namespaces,
        metadata: MetadataStore,
        *,
        max_pattern_length: int = 50,
        enabled: bool = True,
    ) -> None:
        self._io = io
        self._wheel = wheel
        self._namespaces = namespaces
        self._max_pattern_length = max_pattern_length
        self.enabled = enabled
        self._tasks = TaskScope(io.loop, "lists of topics", owner_goes_on)
        self._lists: dict[tuple[str, str], TopicList] = {}
        self._by_path: dict[str, dict[TopicList, None]] = {}
        self.held = 0
        """The memory use in units of one topic name: each name counts 1, lists and watchers count more."""
        metadata.listen(ROOT, self._changed)
        metadata.listen_session(self._session_changed)

    def matcher(self, pattern: str) -> Matches | None:
        """Returns a matcher of topic names; None if the client must filter the names itself, because the
        pattern is too long or not supported."""
        if not self.enabled or len(pattern) > self._max_pattern_length:
            return None
        return compile_pattern(pattern)

    async def watch(
        self,
        connection: Connection,
        watcher_id: int,
        namespace: NamespaceName,
        pattern: str,
        principal: Principal = BROKER,
    ) -> TopicList | None:
        """Adds a watcher, which gets all changes from now on, and returns its list.

        Returns None if the connection or the watcher was closed in the meantime. If the id is in use, the
        existing watcher stays.

        :param principal: the principal of the client
        :raises NotAllowed: the broker does not support watching topics, or not with that pattern
        :raises TooManyRequests: the limit of watched names is reached
        """
        if connection.closed:
            return None
        found = connection.session.topic_watchers.get(watcher_id)
        if found is None:
            found = self._list(namespace, pattern)
            found.users += 1
            self.held += _WATCHER_PRICE
            connection.session.topic_watchers[watcher_id] = found
        try:
            if found.loading is not None:
                await outcome(self._io.loop, found.loading)
        except BaseException:
            if connection.session.topic_watchers.get(watcher_id) is found:
                self.close(connection, watcher_id)
            raise
        if connection.session.topic_watchers.get(watcher_id) is not found:
            return None
        # The present watchers are first told what the new one gets with the list.
        found.flush()
        found.watchers[connection, watcher_id] = None
        return found

    def _list(self, namespace: NamespaceName, pattern: str) -> TopicList:
        if not self.enabled:
            raise NotAllowed(
                "Unable to create topic list watcher: enableBrokerSideSubscriptionPatternEvaluation is false"
            )
        if len(pattern) > self._max_pattern_length:
            raise NotAllowed(
                f"Unable to create topic list watcher: Pattern longer than maximum: "
                f"{self._max_pattern_length}"
            )
        key = (namespace.path, pattern)
        known = self._lists.get(key)
        if known is not None:
            return known
        matches = compile_pattern(pattern)
        if matches is None:
            # On this error clients request the list from time to time; on others they retry watching.
            raise NotAllowed(
                f"Unable to create topic list watcher: the pattern is not valid in RE2: {pattern}"
            )
        if self.held >= MAX_HELD:
            raise TooManyRequests(
                "Unable to create topic list watcher: this broker watches the maximum of "
                f"{MAX_HELD} topic names; close other watchers"
            )
        found = self._lists[key] = TopicList(key, namespace, matches)
        self._by_path.setdefault(_parent(namespace), {})[found] = None
        self.held += _LIST_PRICE
        found.loading = self._tasks.answer(self._load(found))
        return found

    async def _matching(self, found: TopicList) -> list[str]:
        try:
            names: Sequence[str] = await self._namespaces.persistent_topics(found.namespace)
        except NamespaceNotFound:
            names = ()
        matching: list[str] = []

        def take(name: str) -> None:
            if found.matches(name) and not TopicName.parse(name).reserved:
                matching.append(name)

        await each(self._io, "listing", names, take)
        return matching

    async def _load(self, found: TopicList) -> None:
        found.names = await self._matching(found)
        early, found.early = found.early or (), None
        for name, exists in early:
            found.change(name, exists)
        # No watcher has been told anything yet.
        found.forget_news()
        if found.users:
            self.held += len(found.names)
        found.loading = None

    def close(self, connection: Connection, watcher_id: int) -> None:
        """Removes a watcher; does nothing if the id is unknown."""
        found = connection.session.topic_watchers.pop(watcher_id, None)
        if found is None:
            return
        found.watchers.pop((connection, watcher_id), None)
        found.users -= 1
        self.held -= _WATCHER_PRICE
        if found.users or self._lists.get(found.key) is not found:
            return
        del self._lists[found.key]
        parent = _parent(found.namespace)
        del self._by_path[parent][found]
        if not self._by_path[parent]:
            del self._by_path[parent]
        self.held -= _LIST_PRICE
        if found.loading is None:
            self.held -= len(found.names)
        if found.flushing is not None:
            found.flushing.cancel()
        if found.renewing is not None:
            found.renewing.cancel()

    def close_all(self, connection: Connection) -> None:
        """Removes all watchers of a connection that was closed."""
        for watcher_id in list(connection.session.topic_watchers):
            self.close(connection, watcher_id)

    # Changes of topics

    def _session_changed(self, event: SessionEvent) -> None:
        if event is not SessionEvent.RECONNECTED:
            return
        for found in self._lists.values():
            before = found.renewing
            if before is not None:
                before.cancel()
            found.renewing = self._tasks.start(self._renew(found), "comparing a list")

    async def _renew(self, found: TopicList) -> None:
        """Compares a list with the existing topics, and sends watchers the changes that the notifications of
        the metadata store have missed."""
        try:
            if found.loading is not None:
                await finished(self._io.loop, found.loading)
            # Changes from here on are applied after the comparison.
            early: list[tuple[str, bool]] = []
            found.early = early
            try:
                there = set(await self._matching(found))
            finally:
                if found.early is early:
                    found.early = None
            for name, exists in early:
                there.add(name) if exists else there.discard(name)
            for name in sorted(there.symmetric_difference(found.names)):
                self._tell(found, name, name in there)
            found.renewing = None
        except (MetadataError, MetadataFailure) as error:
            log.warning(
                "cannot list watched topics; trying again",
                extra={"namespace": str(found.namespace), "error": str(error)},
            )
            found.renewing = self._wheel.schedule(_RETRY_SECONDS, self._renew_again, found)
        except Exception:
            # Otherwise its watchers would not hear of what they have missed.
            found.renewing = self._wheel.schedule(_RETRY_SECONDS, self._renew_again, found)
            raise

    def _renew_again(self, found: TopicList) -> None:
        found.renewing = self._tasks.start(self._renew(found), "comparing a list")

    def _changed(self, change: Change) -> None:
        if not self._by_path or change.kind not in (ChangeKind.CREATED, ChangeKind.DELETED):
            return
        parent, _slash, child = change.path.rpartition("/")
        lists = self._by_path.get(parent)
        if not lists:
            return
        namespace = next(iter(lists)).namespace
        try:
            topic = TopicName(Domain.PERSISTENT, namespace, decode_path_piece(child))
        except InvalidName as error:
            log.warning(
                "metadata node ignored: its name is not a topic name",
                extra={"path": change.path, "error": str(error)},
            )
            return
        if topic.reserved:
            return
        name, exists = str(topic), change.kind is ChangeKind.CREATED
        for each_list in lists:
            if each_list.matches(name):
                self._tell(each_list, name, exists)

    def _tell(self, found: TopicList, name: str, exists: bool) -> None:
        if found.early is not None:
            found.early.append((name, exists))
            return
        self.held += found.change(name, exists)
        if found.has_news and found.flushing is None:
            delay = len(found.names) * SECONDS_PER_NAME
            found.flushing = self._wheel.schedule(delay, found.flush)


def _parent(namespace: NamespaceName) -> str:
    return f"{ROOT}/{namespace.path}/persistent"


class ListedNames(NamedTuple):
    """The arguments of a request for a list of topic names."""

    namespace: NamespaceName
    mode: str
    """The kind of the topics: ``PERSISTENT``, ``NON_PERSISTENT`` or ``ALL``."""
    system: bool
    """Whether system topics are included."""


class NameListings:
    """Creates at most one list with the same arguments at a time.

    Requests that arrive meanwhile share the next list, so that a list contains all topics that existed when
    it was requested.
    """

    def __init__(self, loop: Loop, make: Callable[[ListedNames], Awaitable[Sequence[str]]]) -> None:
        self._loop = loop
        self._make = make
        self._tasks = TaskScope(loop, "lists of names", owner_goes_on)
        self._running: dict[ListedNames, Task[Sequence[str]]] = {}
        self._next: dict[ListedNames, Task[Sequence[str]]] = {}

    async def names(self, listed: ListedNames) -> Sequence[str]:
        """Returns a list of names; other requests may get the same list.

        :raises Exception: the error of creating the list
        """
        listing = self._next.get(listed)
        if listing is None:
            listing = self._tasks.answer(self._list(listed, self._running.get(listed)))
            self._next[listed] = listing
        names: Sequence[str] = await outcome(self._loop, listing)
        return names

    async def _list(self, listed: ListedNames, before: Task[Sequence[str]] | None) -> Sequence[str]:
        if before is not None:
            await finished(self._loop, before)
        running = self._running[listed] = self._next.pop(listed)
        try:
            return await self._make(listed)
        finally:
            if self._running.get(listed) is running:
                del self._running[listed]
