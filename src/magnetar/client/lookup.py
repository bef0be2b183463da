"""Looks up the broker and the number of partitions of a topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from magnetar.client.connection import Connection
from magnetar.client.enums import RegexSubscriptionMode
from magnetar.client.exceptions import (
    ConnectError,
    InvalidUrl,
    LookupError,
    PulsarException,
    Timeout,
    server_exception,
)
from magnetar.client.observing import Observed, timed
from magnetar.client.pool import ConnectionPool
from magnetar.client.security import Address, BrokerUrls, FindBroker, parse_service_url
from magnetar.client.wire import Assigned
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandGetTopicsOfNamespace,
    CommandLookupTopicResponse,
    CommandPartitionedTopicMetadataResponse,
    Schema,
)

MAX_REDIRECTS = 20
_MODES = (
    CommandGetTopicsOfNamespace.PERSISTENT,
    CommandGetTopicsOfNamespace.NON_PERSISTENT,
    CommandGetTopicsOfNamespace.ALL,
)


@dataclass(frozen=True, slots=True)
class TopicBroker:
    """The broker of a topic."""

    broker: Address
    through: Address
    """The address to connect to: the address of the broker, or of a proxy."""


class Lookup:
    def __init__(
        self,
        pool: ConnectionPool,
        services: tuple[Address, ...],
        *,
        timeout: float,
        secured: bool = False,
        listener_name: str = "",
        first: int = 0,
        find: FindBroker | None = None,
        observed: Observed | None = None,
    ) -> None:
        """:param services: service addresses; the client uses an address as long as it answers, then the next
        address

        :param timeout: maximum time for each answer, in seconds
        :param secured: whether to connect to the TLS addresses of brokers
        :param listener_name: the advertised listener to request
        :param first: index of the service address to use first
        :param find: returns a topic's broker from a lookup over HTTP; None: lookups use the binary protocol
            at ``services``
        :param observed: measures the client; None: no measurements
        """
        self._observed = observed
        self._pool = pool
        self._services = services
        self._timeout = timeout
        self._secured = secured
        self._listener_name = listener_name
        self._turn = first
        self._find = find
        self._found: Address | None = None
        """The broker that a lookup over HTTP returned, and that answers later lookups; None: a lookup over
        HTTP is needed first, if the client uses web services.
        """

    def change(self, services: tuple[Address, ...], *, secured: bool, find: FindBroker | None) -> None:
        """Uses the service addresses of another cluster from now on; for the parameters see the
        constructor.
        """
        self._services = services
        self._secured = secured
        self._turn = 0
        self._find, self._found = find, None

    async def owner(self, topic: str) -> TopicBroker:
        """Returns the broker of a topic without partitions, or of one partition.

        :raises LookupError: more redirects than the maximum
        :raises PulsarException: the broker refused or did not answer in time, or the connection failed
        """
        return await timed(self._observed, "topic", lambda: self._owner(topic))

    async def _owner(self, topic: str) -> TopicBroker:
        connection, asked = await self._service(topic)
        authoritative = False
        for _ in range(MAX_REDIRECTS):
            answer = await self._ask(connection, topic, authoritative)
            if answer.response == CommandLookupTopicResponse.Failed:
                raise server_exception(answer.error, answer.message)
            broker = self._broker(BrokerUrls(answer.brokerServiceUrl, answer.brokerServiceUrlTls))
            # After a redirect, the answering broker: service discovery forwards nothing.
            through = asked if answer.proxy_through_service_url else broker
            if answer.response == CommandLookupTopicResponse.Connect:
                return TopicBroker(broker, through)
            authoritative = answer.authoritative
            connection, asked = await self._pool.get(broker, through), through
        raise LookupError(
            f"{topic}: more than {MAX_REDIRECTS} redirects; check that the brokers of the "
            "cluster agree on the owner of the topic"
        )

    def assigned(self, told: Assigned, last: TopicBroker | None) -> TopicBroker | None:
        """Returns the topic's new broker, as CLOSE_PRODUCER or CLOSE_CONSUMER named it; None: the command
        named no address of the required kind (with or without TLS).

        :param told: the addresses in the command
        :param last: the topic's former broker; if the client reached it through a proxy, the same proxy is
            used again. None: no former broker
        """
        url = told.url_tls if self._secured else told.url
        if not url:
            return None
        try:
            broker = parse_service_url(url)[0]
        except InvalidUrl:
            return None
        proxied = last is not None and last.through != last.broker
        return TopicBroker(broker, last.through if last is not None and proxied else broker)

    def of_cluster(self, told: Assigned) -> Lookup | None:
        """Returns the lookup for the cluster that a topic has migrated to; None: the broker named no address
        of the required kind (with or without TLS).
        """
        url = told.url_tls if self._secured else told.url
        if not url:
            return None
        try:
            services = parse_service_url(url)
        except InvalidUrl:
            return None
        return Lookup(
            self._pool,
            services,
            timeout=self._timeout,
            secured=self._secured,
            listener_name=self._listener_name,
            observed=self._observed,
        )

    def _broker(self, urls: BrokerUrls) -> Address:
        url = urls.tls if self._secured else urls.plain
        if not url:
            raise LookupError(
                f"the broker of the topic has no address {'for' if self._secured else 'without'} TLS"
            )
        return parse_service_url(url)[0]

    async def partitions(self, topic: str, *, makes_topic: bool = True) -> int:
        """Returns the number of a topic's partitions; 0: the topic is not partitioned.

        :param makes_topic: whether the broker may create the topic if it does not exist
        :raises PulsarException: the broker refused or did not answer in time, or the connection failed
        """
        return await timed(
            self._observed, "metadata", lambda: self._partitions(topic, makes_topic=makes_topic)
        )

    async def _partitions(self, topic: str, *, makes_topic: bool) -> int:
        connection, _ = await self._service(topic)
        request_id = connection.wire.new_request_id()
        command = BaseCommand(type=BaseCommand.PARTITIONED_METADATA)
        command.partitionMetadata.topic = topic
        command.partitionMetadata.metadata_auto_creation_enabled = makes_topic
        command.partitionMetadata.request_id = request_id
        answered: BaseCommand = await connection.ask(request_id, command, self._timeout)
        answer = answered.partitionMetadataResponse
        if answer.response == CommandPartitionedTopicMetadataResponse.Failed:
            raise server_exception(answer.error, answer.message)
        return answer.partitions

    async def topics(
        self, namespace: str, pattern: str, mode: RegexSubscriptionMode
    ) -> tuple[Sequence[str], bool]:
        """Returns the names of a namespace's topics (for partitioned topics, the names of their partitions),
        and whether the broker has already applied ``pattern``.

        :param pattern: a regular expression for whole names without ``persistent://``; empty: all topics
        :param mode: whether to return persistent topics, non-persistent topics or both
        :raises PulsarException: the broker refused or did not answer in time, or the connection failed
        """
        return await timed(self._observed, "list-topics", lambda: self._topics(namespace, pattern, mode))

    async def _topics(
        self, namespace: str, pattern: str, mode: RegexSubscriptionMode
    ) -> tuple[Sequence[str], bool]:
        # Web services know brokers by a topic, which need not exist.
        connection, _ = await self._service(f"persistent://{namespace}/topics")
        request_id = connection.wire.new_request_id()
        command = BaseCommand(type=BaseCommand.GET_TOPICS_OF_NAMESPACE)
        wanted = command.getTopicsOfNamespace
        wanted.request_id = request_id
        wanted.namespace = namespace
        wanted.mode = _MODES[mode]
        if pattern:
            wanted.topics_pattern = pattern
        answered: BaseCommand = await connection.ask(request_id, command, self._timeout)
        answer = answered.getTopicsOfNamespaceResponse
        return list(answer.topics), answer.filtered

    async def schema(self, topic: str, version: bytes) -> Schema:
        """Returns the newest schema of a topic, or the schema with a given version.

        :param version: the version of the schema, as in the metadata of messages; empty: the newest version
        :raises TopicNotFound: the topic has no schema
        :raises PulsarException: the broker refused or did not answer in time, or the connection failed
        """
        return await timed(self._observed, "schema", lambda: self._schema(topic, version))

    async def _schema(self, topic: str, version: bytes) -> Schema:
        connection, _ = await self._service(topic)
        command = BaseCommand(type=BaseCommand.GET_SCHEMA)
        request_id = command.getSchema.request_id = connection.wire.new_request_id()
        command.getSchema.topic = topic
        if version:
            command.getSchema.schema_version = version
        answered: BaseCommand = await connection.ask(request_id, command, self._timeout)
        answer = answered.getSchemaResponse
        if answer.HasField("error_code"):
            raise server_exception(answer.error_code, answer.error_message)
        return answer.schema

    async def _ask(
        self, connection: Connection, topic: str, authoritative: bool
    ) -> CommandLookupTopicResponse:
        request_id = connection.wire.new_request_id()
        command = BaseCommand(type=BaseCommand.LOOKUP)
        lookup = command.lookupTopic
        lookup.topic = topic
        lookup.request_id = request_id
        lookup.authoritative = authoritative
        if self._listener_name:
            lookup.advertised_listener_name = self._listener_name
        answered: BaseCommand = await connection.ask(request_id, command, self._timeout)
        return answered.lookupTopicResponse

    async def connection(self) -> Connection:
        """Returns the connection for lookups.

        :raises PulsarException: no service address answers
        """
        return (await self._service(""))[0]

    async def _service(self, topic: str) -> tuple[Connection, Address]:
        """Returns a connection for lookups and its address: the service address in use or, if this address
        does not answer, the next address that answers.

        :param topic: for lookups over HTTP, the topic whose broker to connect to; empty: any known broker
        """
        if self._find is not None:
            return await self._first_broker(self._find, topic)
        failure: PulsarException = ConnectError("no service address was given")
        for turn in range(self._turn, self._turn + len(self._services)):
            address = self._services[turn % len(self._services)]
            try:
                connection = await self._pool.get(address, address)
            except (ConnectError, Timeout) as error:
                failure = error
                continue
            self._turn = turn
            return connection, address
        raise failure

    async def _first_broker(self, find: FindBroker, topic: str) -> tuple[Connection, Address]:
        if self._found is not None:
            try:
                return await self._pool.get(self._found, self._found), self._found
            except (ConnectError, Timeout):
                # That broker may have stopped for good; the web services name another one.
                self._found = None
        if not topic:
            raise ConnectError(
                "the client knows no broker yet; look up a topic first, for example by opening a producer"
            )
        broker = self._broker(await find(topic))
        connection = await self._pool.get(broker, broker)
        self._found = broker
        return connection, broker
