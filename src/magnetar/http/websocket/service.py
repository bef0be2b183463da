"""The WebSockets of a process, which share one client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

from magnetar.client.client import Client
from magnetar.client.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConsumerBusy,
    IncompatibleSchema,
    InvalidConfiguration,
    InvalidTopicName,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ProducerBusy,
    ProducerFenced,
    PulsarException,
    Timeout,
    TooManyLookupRequestException,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.client.message_id import MessageId
from magnetar.client.unpacking import Unpacking
from magnetar.http.engine.message import Request, Response, error_response
from magnetar.http.engine.origins import claim_of
from magnetar.http.engine.websocket import POLICY_VIOLATION, WebSocket, WebSocketLimits, refusal_of, upgrade
from magnetar.http.websocket.consuming import Consuming, Reading, Receiving, Terms
from magnetar.http.websocket.figures import Traffic, WebSocketFigures, by_namespace, by_topic
from magnetar.http.websocket.parameters import (
    consumer_options,
    dead_letter_topics,
    producer_options,
    pulls,
    reader_options,
    receiver_queue_size,
)
from magnetar.http.websocket.producing import Producing
from magnetar.http.websocket.user import User
from magnetar.io.interfaces import Cancellable, ClientIo
from magnetar.io.locks import Room
from magnetar.naming.replicators import DEFAULT_PREFIX, remote_cluster_of
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import Authenticator
from magnetar.security.authorization import Authorizer

_STATUSES: Mapping[type[PulsarException], int] = {
    InvalidConfiguration: HTTPStatus.BAD_REQUEST,
    InvalidTopicName: HTTPStatus.BAD_REQUEST,
    AuthenticationError: HTTPStatus.UNAUTHORIZED,
    AuthorizationError: HTTPStatus.FORBIDDEN,
    TopicNotFound: HTTPStatus.NOT_FOUND,
    ProducerBusy: HTTPStatus.CONFLICT,
    ConsumerBusy: HTTPStatus.CONFLICT,
    ProducerFenced: HTTPStatus.CONFLICT,
    IncompatibleSchema: HTTPStatus.CONFLICT,
    TooManyLookupRequestException: HTTPStatus.TOO_MANY_REQUESTS,
    ProducerBlockedQuotaExceededError: HTTPStatus.SERVICE_UNAVAILABLE,
    ProducerBlockedQuotaExceededException: HTTPStatus.SERVICE_UNAVAILABLE,
    TopicTerminated: HTTPStatus.SERVICE_UNAVAILABLE,
    Timeout: HTTPStatus.GATEWAY_TIMEOUT,
}
"""The HTTP status, as in Pulsar's WebSocket service, for each error before a WebSocket is open; other errors
have 500.
"""

_WHO_WE_ARE = "; the WebSocket service authenticates with brokerClientAuthenticationPlugin"

_METRICS_SECONDS = 60.0
_MOST_UNPACKED_BYTES = 16 << 20
"""Maximum decompressed size of a message or batch, in bytes; if a larger one arrives, its WebSocket is
closed.
"""
_COPIES = 3
"""How many copies of a message are in memory: its bytes, their Base64 form as a string, and the frame that
waits for the client.
"""
_ROOM_BYTES = 64 << 20
"""Memory limit of all WebSockets together for messages that were compressed and are being delivered, in
bytes.
"""
_WAITING = 1024
_WAIT_SECONDS = 60.0


class WebSocketService:
    def __init__(
        self,
        io: ClientIo,
        make_client: Callable[[], Client],
        limits: WebSocketLimits | None = None,
        replicator_prefix: str = DEFAULT_PREFIX,
    ) -> None:
        """:param make_client: creates the client; called for the first WebSocket

        :param replicator_prefix: prefix of producer names that are reserved for replicators of other clusters
        """
        self._replicator_prefix = replicator_prefix
        self._io = io
        self._make_client = make_client
        self._limits = limits or WebSocketLimits()
        self._client: Client | None = None
        room = Room(io.loop, _ROOM_BYTES, waiting=_WAITING, seconds=_WAIT_SECONDS)
        self._unpacking = Unpacking(io.apart, room, most=_MOST_UNPACKED_BYTES, copies=_COPIES)
        self._open: dict[Producing | Consuming, User] = {}
        self._users: dict[User, None] = {}
        self._gone: dict[str, Traffic] = {}
        """The traffic of WebSockets that have ended, by namespace."""
        self._before: dict[str, Traffic] = {}
        self._metrics: Sequence[Mapping[str, object]] = ()
        self._counting: Cancellable | None = None

    # users

    def admit(self, authenticator: Authenticator, authorizer: Authorizer, request: Request) -> User:
        """Creates the user of a request; permissions are checked again after changes, until
        :meth:`User.leave` is called.
        """
        user = User(
            self._io.loop,
            self._io.clock,
            authenticator,
            authorizer,
            request.principal,
            claim_of(request),
            self._users.pop,
        )
        self._users[user] = None
        return user

    def users(self) -> Iterable[User]:
        """Returns the users of all WebSockets that are open or opening."""
        return self._users

    # listeners

    async def produce(self, request: Request, user: User, topic: TopicName) -> Response:
        """Opens a WebSocket of a producer.

        :raises InvalidRequest: a parameter is not valid
        :raises AuthorizationFailure: the user lacks permission to publish
        """
        options = producer_options(request.query)
        named = remote_cluster_of(self._replicator_prefix, options.get("producer_name") or "")
        await user.check_produce(topic, replicates=named is not None)
        name = str(topic)

        async def make() -> Producing | Consuming:
            producer = await self._the_client().create_producer(name, **options)
            return Producing(self._io.loop, self._io.clock, name, producer, self._forget)

        return await self._upgraded(request, user, make)

    async def consume(self, request: Request, user: User, topic: TopicName, subscription: str) -> Response:
        """Opens a WebSocket of a consumer.

        :raises InvalidRequest: a parameter is not valid
        :raises AuthorizationFailure: the user lacks permission to consume, or to publish to the dead letter
            topic
        """
        options = await self._consumer_options(request, user, (topic,), subscription)
        name = str(topic)

        async def subscribe() -> Receiving:
            return await self._the_client().subscribe(name, subscription, **options)

        return await self._consumed(request, user, (name,), subscription, subscribe)

    async def consume_several(
        self, request: Request, user: User, topics: Sequence[TopicName], subscription: str
    ) -> Response:
        """Like :meth:`consume`, for several topics."""
        options = await self._consumer_options(request, user, topics, subscription)
        names = tuple(str(topic) for topic in topics)

        async def subscribe() -> Receiving:
            return await self._the_client().subscribe_to_topics(names, subscription, **options)

        return await self._consumed(request, user, names, subscription, subscribe, several=True)

    async def consume_matching(
        self, request: Request, user: User, pattern: TopicName, subscription: str
    ) -> Response:
        """Like :meth:`consume`, for all matching topics of the pattern's namespace.

        :param pattern: a regular expression in the form of a full topic name; the user needs permission on
            the whole namespace
        """
        options = await self._consumer_options(request, user, (pattern,), subscription)
        name = str(pattern)

        async def subscribe() -> Receiving:
            return await self._the_client().subscribe_to_pattern(name, subscription, **options)

        return await self._consumed(request, user, (name,), subscription, subscribe, several=True)

    async def read(self, request: Request, user: User, topic: TopicName) -> Response:
        """Opens a WebSocket of a reader.

        :raises InvalidRequest: a parameter is not valid
        :raises AuthorizationFailure: the user lacks permission to consume
        """
        start, options = reader_options(request.query)
        await user.check_consume(topic)
        name = str(topic)
        subscription = f"reader-{self._io.randomness.token(5).hex()}"

        async def make() -> Producing | Consuming:
            client = self._the_client()
            if start not in (MessageId.earliest, MessageId.latest) and await client.partitions(name):
                raise InvalidConfiguration(
                    f"{name} is partitioned, but a message id belongs to one partition; name that partition"
                )
            consumer = await client.subscribe(
                name,
                subscription,
                durable=False,
                start_message_id=start,
                unpacking=self._unpacking,
                **options,
            )
            terms = Terms((name,), subscription, pending=receiver_queue_size(request.query))
            return Consuming(self._io.loop, terms, Reading(consumer), self._forget)

        return await self._upgraded(request, user, make)

    async def _consumer_options(
        self, request: Request, user: User, topics: Sequence[TopicName], subscription: str
    ) -> dict[str, Any]:
        """Checks the permissions of the user, and returns the options of the consumer.

        :raises InvalidRequest: a parameter is not valid
        :raises AuthorizationFailure: the user lacks permission on one of the topics
        """
        options = consumer_options(request.query)
        for topic in topics:
            await user.check_consume(topic, subscription)
        for topic in dead_letter_topics(request.query, [str(topic) for topic in topics], subscription):
            await user.check_produce(topic)
        return {
            **options,
            "check_dead_letter_topic": user.check_dead_letters,
            "unpacking": self._unpacking,
        }

    async def _consumed(
        self,
        request: Request,
        user: User,
        topics: tuple[str, ...],
        subscription: str,
        subscribe: Callable[[], Awaitable[Receiving]],
        *,
        several: bool = False,
    ) -> Response:
        query = request.query
        terms = Terms(
            topics,
            subscription,
            query.get("subscriptionType", "Exclusive"),
            query.get("subscriptionMode") != "NonDurable",
            pulls(query),
            receiver_queue_size(query),
            several,
        )

        async def make() -> Producing | Consuming:
            return Consuming(self._io.loop, terms, await subscribe(), self._forget)

        return await self._upgraded(request, user, make)

    async def _upgraded(
        self, request: Request, user: User, make: Callable[[], Awaitable[Producing | Consuming]]
    ) -> Response:
        refused = refusal_of(request)
        if refused is not None:
            return refused
        try:
            made = await make()
        except PulsarException as error:
            status = _STATUSES.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
            hint = _WHO_WE_ARE if isinstance(error, AuthenticationError) else ""
            return error_response(status, f"Failed to create producer/consumer: {error}{hint}")
        self._open[made] = user
        socket = WebSocket(made, self._io.loop, self._limits)
        user.until(lambda reason: socket.close(POLICY_VIOLATION, reason))
        return upgrade(request, socket)

    def _the_client(self) -> Client:
        if self._client is None:
            self._client = self._make_client()
            self._counting = self._io.loop.call_later(_METRICS_SECONDS, self._count)
        return self._client

    # figures

    def topics(self) -> dict[str, dict[str, list[dict[str, Any]]]]:
        """Returns the statistics of WebSockets by topic."""
        return by_topic(each.told() for each in self._open)

    def metrics(self) -> Sequence[Mapping[str, Any]]:
        """Returns the traffic of the last whole minute by namespace."""
        return self._metrics

    def _forget(self, ended: Producing | Consuming) -> None:
        self._open.pop(ended).leave()
        _add(self._gone, ended.told())

    def _count(self) -> None:
        now: dict[str, Traffic] = {}
        for namespace, traffic in self._gone.items():
            now.setdefault(namespace, Traffic()).add(traffic)
        for each in self._open:
            _add(now, each.told())
        self._metrics = by_namespace(now, self._before)
        self._before = now
        self._counting = self._io.loop.call_later(_METRICS_SECONDS, self._count)

    async def close(self) -> None:
        """Closes the client of the service; must be called after all WebSockets have ended."""
        if self._counting is not None:
            self._counting.cancel()
        if self._client is not None:
            await self._client.close()


def _add(by_name: dict[str, Traffic], told: WebSocketFigures) -> None:
    by_name.setdefault(_namespace(told.topics[0]), Traffic()).add(told.traffic)


def _namespace(topic: str) -> str:
    """Returns the namespace of a topic or of a pattern of topics."""
    return "/".join(topic.split("://", 1)[-1].split("/")[:2])
