"""Unloading of bundles: first their topics are closed, so that no acknowledged data is pending.

Then ownership is released, or transferred to a known broker.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

from magnetar.broker.flow.connection import Assigned, Departure
from magnetar.broker.ownership.brokers import BrokerRecord
from magnetar.broker.ownership.contract import Bundle
from magnetar.broker.ownership.peers import Beside
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.errors import BrokerError
from magnetar.io.interfaces import Clock, Loop, Task
from magnetar.io.tasks import KeyedTasks, TaskScope, owner_goes_on
from magnetar.io.waiting import finished, outcome, sleep
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName

if TYPE_CHECKING:
    from magnetar.broker.serving.topics import ServedTopics


T = TypeVar("T")
log = logging.getLogger(__name__)
_SECONDS = 3.0
"""How long clients wait for the new owner of a bundle, in seconds; afterwards they look up the topic."""
_RETRY_SECONDS = 0.05


class Unloads:
    """Unloads bundles. A request to unload a bundle that is being unloaded waits for the unload in
    progress.
    """

    def __init__(self, loop: Loop, clock: Clock, topics: ServedTopics) -> None:
        self._loop = loop
        self._clock = clock
        self._topics = topics
        self._tasks = TaskScope(loop, "unloads of bundles", owner_goes_on)
        self._going: KeyedTasks[Bundle, None] = KeyedTasks(self._tasks)
        self.handing_over: HandingOver | None = None
        """Transfers bundles to other brokers; None: no broker can receive bundles."""
        self.most_per_second = 0
        """The maximum number of bundles per second that are released when the broker stops; 0: no limit."""
        self.patience: Callable[[], float] = lambda: 60.0
        """Returns the seconds within which the topics of a bundle must be closed."""
        self.closes_with: list[Callable[[Bundle, float], Awaitable[None]]] = []
        """Functions that close the objects of a bundle besides its topics, such as transaction coordinators;
        the arguments are the bundle and the maximum time in seconds.
        """
        self.unrecorded = 0
        """The number of topics and bundles that the stopping broker has closed or released without recording
        this in the metadata."""

    async def unload(self, bundle: Bundle, towards: str | None = None) -> None:
        """Unloads a bundle; returns when other brokers may own it, or at once if this broker does not own it.

        A topic that cannot be closed in time, for example because bookies do not answer, is disowned: the
        next owner fences its ledgers, and recovers the acknowledged entries.

        :param towards: the id of the broker that is to own the bundle next; None: the leader chooses
        :raises MetadataError: this broker stays the owner
        """
        await outcome(self._loop, self._going.answer(bundle, lambda: self._unload(bundle, towards)))

    async def _unload(self, bundle: Bundle, towards: str | None) -> None:
        ownership = self._topics.ownership
        began = ownership.begin_release(bundle)
        deadline = self._clock.monotonic() + self.patience()
        for loading in self._topics.loads_within(bundle.__contains__):
            # A load that takes longer finds that this broker does not own the bundle any more.
            await self._ended(loading, deadline)
        topics = self._topics.loaded_within(bundle)
        target = self.handing_over.target(towards) if self.handing_over is not None and began else None
        departure = Departure() if target is not None else None
        for topic in topics:
            topic.departure = departure
        names = [topic.name for topic in topics]
        assigned = None
        try:
            for close in self.closes_with:
                await close(bundle, deadline - self._clock.monotonic())
            await self._close(bundle, topics, deadline)
            if began:
                # Topics that were not loaded or closed in time must not write to what the next owner stores.
                await self._topics.end_tenures(bundle)
                await ownership.release(bundle, towards)
            if target is not None and departure is not None and departure.waiting and self.handing_over:
                assigned = await self.handing_over.take(target, names[0])
        finally:
            if departure is not None:
                departure.tell(assigned)

    async def _close(self, bundle: Bundle, topics: list[AnyTopic], deadline: float) -> None:
        closing = self._tasks.start(
            self._topics.unload_topics(list(topics)), "closing the topics of a bundle"
        )
        if await self._ended(closing, deadline):
            return
        left = [topic for topic in self._topics.loaded_within(bundle) if topic in topics]
        log.warning(
            "topics not closed in time; disowning them", extra={"bundle": str(bundle), "topics": len(left)}
        )
        for topic in left:
            topic.disown()

    async def _ended(self, work: Task[T], deadline: float) -> bool:
        """Waits until ``deadline``; returns whether the task has ended."""
        left = max(deadline - self._clock.monotonic(), 0.0)
        return await finished(self._loop, work, partial(self._loop.call_later, left))

    async def unload_all(self, seconds: float, towards: Mapping[Bundle, str] | None = None) -> None:
        """Releases all bundles, as far as time permits.

        :param towards: the ids of the next owners of bundles; the leader chooses the owners of other bundles
        """
        deadline = self._clock.monotonic() + seconds
        bundles = list(self._topics.ownership.held())
        going = []
        for bundle in bundles:
            if self._clock.monotonic() >= deadline:
                log.warning(
                    "bundles not released in time; they are freed when the ZooKeeper session ends",
                    extra={"bundles": len(bundles)},
                )
                break
            work = self._quietly(bundle, (towards or {}).get(bundle))
            going.append(self._tasks.start(work, "giving up a bundle"))
            if self.most_per_second:
                await sleep(self._loop, 1 / self.most_per_second)
        for each in going:
            await self._ended(each, deadline)

    async def _quietly(self, bundle: Bundle, towards: str | None) -> None:
        try:
            await self.unload(bundle, towards)
        except MetadataError as error:
            self.unrecorded += 1
            log.warning("cannot release the bundle", extra={"bundle": str(bundle), "error": str(error)})


class HandingOver:
    """Transfers a bundle to a known broker, which takes ownership before clients are redirected."""

    def __init__(self, loop: Loop, beside: Beside, own: Callable[[], BrokerSettings]) -> None:
        self._loop = loop
        self._tasks = TaskScope(loop, "the handover of bundles", owner_goes_on)
        self._beside = beside
        self._own = own

    def target(self, broker_id: str | None) -> BrokerRecord | None:
        """Returns the broker to which clients can be redirected; None if they must look up the topic.

        With several listeners, only a lookup determines which listener the client uses.
        """
        own = self._own()
        if broker_id is None or broker_id == own.broker_id or len(own.listeners) > 1:
            return None
        return self._beside.brokers.get(broker_id)

    async def take(self, target: BrokerRecord, topic: TopicName) -> Assigned | None:
        """Makes the broker ``target`` take ownership of a topic's bundle, as if the leader had redirected a
        lookup to it.

        :returns: the addresses of the bundle's owner; None if the owner is unknown
        """
        asked = self._tasks.answer(self._take(target, topic))
        if not await finished(self._loop, asked, lambda end: self._loop.call_later(_SECONDS, end)):
            asked.cancel()
            return None
        return asked.result()

    async def _take(self, target: BrokerRecord, topic: TopicName) -> Assigned | None:
        kind = "destination" if topic.namespace_name.legacy else "topic"
        path = f"/lookup/v2/{kind}/{topic.domain.value}/{topic.namespace_name}/{quote(topic.local, '')}"
        try:
            answer = (await self._beside.admin.call(target, "GET", path, {"authoritative": "true"})).json()
        except (BrokerError, ValueError) as error:
            log.info(
                "next owner did not accept the topic; clients will look it up",
                extra={"broker": target.broker_id, "reason": str(error) or "not JSON"},
            )
            return None
        found = _assigned(answer)
        if found is not None and self._is_here(found):
            # That broker does not know yet that the bundle is free.
            await sleep(self._loop, _RETRY_SECONDS)
            return await self._take(target, topic)
        return found

    def _is_here(self, found: Assigned) -> bool:
        own = self._own()
        return found.url == own.service_url != "" or found.url_tls == own.service_url_tls != ""


def _assigned(answer: object) -> Assigned | None:
    if not isinstance(answer, dict):
        return None
    url, url_tls = (answer.get(name) or "" for name in ("brokerUrl", "brokerUrlTls"))
    told = isinstance(url, str) and isinstance(url_tls, str) and bool(url or url_tls)
    return Assigned(url, url_tls) if told else None
