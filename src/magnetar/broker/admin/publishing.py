"""Publishing over HTTP: messages given as text are encoded with a schema and published."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from magnetar.broker.admin.brokers import elsewhere
from magnetar.broker.flow.rate_limits import PublishLimiter
from magnetar.broker.ownership.contract import Asked, Owner
from magnetar.broker.ownership.peers import ask
from magnetar.broker.schemas.data import SchemaData, SchemaType, version_bytes
from magnetar.broker.schemas.written_contents import WrittenContents
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.any_topic import AnyTopic, check_not_moved
from magnetar.broker.topics.within import Outcome, RequestProducer
from magnetar.errors import (
    BrokerError,
    InvalidRequest,
    NotFound,
    ServiceNotReady,
    TooManyRequests,
    TopicNotFound,
    TopicTerminated,
)
from magnetar.io.slices import each
from magnetar.io.waiting import sleep
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.hashes import java_string_hash
from magnetar.naming.replicators import remote_cluster_of
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata
from magnetar.security.authentication import Principal
from magnetar.security.authorization import Target, TopicOperation, check

if TYPE_CHECKING:
    from magnetar.client.outgoing_message import MessageOptions

_TRY_AGAIN, _REFUSED = 1, 2
"""Error codes of a message that was not stored: after ``_TRY_AGAIN``, the client may publish the message
again; after ``_REFUSED``, it must not."""

_NO_SCHEMA = -1
"""The version number that stands for no schema: the messages of the topic are bytes."""
_BYTES = '{"type": "BYTES", "schema": ""}'

Json = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    content: str
    key: str | None
    sequence_id: int | None
    """The sequence id; None: the id after the producer's last sequence id."""
    options: MessageOptions
    """The options of the message other than its key and its sequence id."""
    context: str | None
    """A string of the client's choice, returned with the outcome of the message; None: no string."""
    form: Json
    """The received JSON, to pass on to another broker."""


@dataclass(frozen=True, slots=True)
class Publication:
    """The body of a request to publish: Pulsar's ``ProducerMessages``."""

    messages: Sequence[WrittenMessage]
    schema: SchemaData | int
    """The schema of the payloads, or a version of the topic's schema."""
    producer_name: str = ""
    """The producer's name; if empty, a unique name is generated."""
    adds_bytes: bool = True
    """Whether a topic without a schema gets a BYTES schema, if :attr:`schema` is a BYTES schema."""


_MOST_SECONDS_FOR_RATES = 5.0
"""The maximum time that a request waits for a rate limit: HTTP clients time out a little later, and repeat
the request."""


@dataclass(frozen=True, slots=True)
class _Encoded:
    written: WrittenMessage
    content: bytes
    key: str | None
    key_is_encoded: bool

    def entry(self, producer: str, sequence_id: int, now_ms: int, schema_version: bytes) -> bytes:
        return build_entry(self._metadata(producer, sequence_id, now_ms, schema_version), self.content)

    def size(self) -> int:
        """Returns the size of the payload, key, properties and other metadata, in bytes."""
        return len(self.content) + self._metadata("", 0, 0, b"").ByteSize()

    def _metadata(
        self, producer: str, sequence_id: int, now_ms: int, schema_version: bytes
    ) -> MessageMetadata:
        metadata = MessageMetadata(
            producer_name=producer,
            sequence_id=sequence_id,
            publish_time=now_ms,
            schema_version=schema_version or None,
            uncompressed_size=len(self.content),
        )
        self.written.options.fill(metadata)
        if self.key is not None:
            metadata.partition_key = self.key
            metadata.partition_key_b64_encoded = self.key_is_encoded
        return metadata


class PublishingAdmin:
    """Publishes the messages in HTTP requests. Topics are given by their full names."""

    def __init__(self, broker: BrokerService, principal: Principal) -> None:
        """:param principal: the principal of the client that publishes"""
        self._broker = broker
        self._principal = principal

    def now_ms(self) -> int:
        """Returns the time, in milliseconds since 1970."""
        return self._broker.io.clock.wall_ms()

    async def publish(
        self, topic: str, wanted: Publication, address: str, partition: int | None = None
    ) -> Json:
        """Publishes messages; returns ``ProducerAcks``, the outcome of each message in order.

        On a partitioned topic a message with a key goes to the partition that producers choose for the key;
        messages without a key go to the partitions in turn.

        :param address: ``host:port`` of the client
        :param partition: the partition for all messages; None: chosen per message
        :raises AuthorizationFailure: the producer's name is reserved for replicators of other clusters
        :raises TopicNotFound: no such topic or partition
        :raises NotFound: no such version of the schema
        :raises InvalidRequest: a message does not fit the schema, or is too large; nothing is published
        :raises InvalidSchemaData: the schema is not valid
        :raises IncompatibleSchema: the schema is not compatible with the existing schemas
        :raises BrokerError: all messages go to one topic or partition, which accepts no messages; a
            terminated topic is reported in the outcomes instead
        """
        name = self._broker.parse_topic(topic)
        await self._check_name(name, wanted.producer_name)
        places = await self._places(name, partition)
        schema = await self._schema(name, wanted.schema)
        encoded = await self._broker.schemas.run(lambda: _encoded(schema, wanted.messages))
        self._check_sizes(encoded)
        version = await self._version(name, wanted)
        parts: dict[TopicName, list[int]] = {}
        turn = self._broker.request_turns.take(name, sum(message.key is None for message in encoded))
        for number, message in enumerate(encoded):
            if message.key is not None:
                place = places[java_string_hash(message.key) % len(places)]
            else:
                place, turn = places[turn % len(places)], turn + 1
            parts.setdefault(place, []).append(number)
        acks: dict[int, Json] = {}
        for place, numbers in parts.items():
            some = [encoded[number] for number in numbers]
            try:
                told = await self._publish_at(place, name, wanted.producer_name, some, version, address)
            except BrokerError as error:
                if len(parts) == 1 and not isinstance(error, TopicTerminated):
                    raise
                told = [_ack(error, place, message) for message in some]
            acks.update(zip(numbers, told, strict=True))
        return {
            "messagePublishResults": [acks[number] for number in range(len(encoded))],
            "schemaVersion": version,
        }

    async def _places(self, name: TopicName, partition: int | None) -> Sequence[TopicName]:
        """Returns the partitions that messages may go to, or the topic itself if it is not partitioned.

        :param partition: the index of the only partition to publish to; None: any partition
        :raises TopicNotFound: the topic or the partition does not exist
        :raises InvalidRequest: ``partition`` is given, and the topic is itself a partition
        :raises ServedElsewhere: another broker serves ``partition``
        """
        await self._broker.namespaces.check(name.namespace_name)
        if partition is not None and name.partition_index >= 0:
            raise InvalidRequest("Topic name can't contain '-partition-' suffix.")
        count = await self._broker.namespaces.partitions(name)
        if partition is not None:
            if not 0 <= partition < count:
                raise TopicNotFound(
                    f"Topic {name} has {count} partitions: partition {partition} does not exist"
                )
            place = name.partition(partition)
            owner = await self._broker.lookups.owner_of(place, Asked.PLACE)
            if not owner.here:
                raise elsewhere(f"{place} is served by {owner.broker_id}", owner)
            return [place]
        if count:
            return [name.partition(index) for index in range(count)]
        await self._broker.topics.load(name, create=False, principal=self._principal)
        return [name]

    async def _schema(self, name: TopicName, wanted: SchemaData | int) -> SchemaData:
        """Returns the given schema, or the topic's schema with the given version.

        :raises NotFound: the topic has no such version
        """
        if isinstance(wanted, SchemaData):
            return wanted
        stored = await self._broker.schemas.get(name.schema_path, wanted)
        if stored is None:
            raise NotFound(f"Topic {name} has no schema version {wanted}")
        return stored.data

    async def _version(self, name: TopicName, publication: Publication) -> int:
        """Returns the version of the publication's schema, after adding the schema if it is new."""
        wanted = publication.schema
        if isinstance(wanted, int):
            return wanted
        is_bytes = wanted.type is SchemaType.NONE and not publication.adds_bytes
        if is_bytes and not await self._broker.schemas.versions(name.schema_path):
            # As producers of bytes do: schemas that follow need not be compatible with bytes.
            return _NO_SCHEMA
        policies = await self._broker.policies.of_topic(name)
        return await self._broker.schemas.put_if_absent(
            name.schema_path, wanted, policies.schema_compatibility, may_add=policies.auto_update_schema
        )

    def _check_sizes(self, encoded: Sequence[_Encoded]) -> None:
        """Checks that messages are within the size limits, which are the limits of the binary protocol.

        :raises InvalidRequest: a message is too large
        """
        most, most_together = self._broker.limits.max_message_size, self._broker.limits.max_frame
        for number, message in enumerate(encoded):
            if len(message.content) > most:
                raise InvalidRequest(
                    f"Message {number} has {len(message.content)} bytes; maxMessageSize is {most}"
                )
            size = message.size()
            if size > most_together:
                raise InvalidRequest(
                    f"Message {number} has {size} bytes with its key and properties; at most "
                    f"{most_together} are allowed, which is maxMessageSize plus {most_together - most}"
                )

    async def _check_name(self, topic: TopicName, producer: str) -> None:
        """Checks the name of a producer.

        :raises AuthorizationFailure: the producer's name is reserved for replicators of other clusters
        """
        prefix = self._broker.settings.topic.replicator_prefix
        if remote_cluster_of(prefix, producer) is not None:
            target = Target.of_topic(topic)
            await check(self._broker.authorizer, self._principal, TopicOperation.REPLICATE, target)

    async def _publish_at(
        self,
        place: TopicName,
        name: TopicName,
        producer: str,
        messages: Sequence[_Encoded],
        version: int,
        address: str,
    ) -> Sequence[Json]:
        """Publishes messages to one topic or partition at its owner, and returns their outcomes."""
        owner = await self._broker.lookups.owner_of(place, Asked.PLACE)
        if not owner.here:
            return await self._publish_elsewhere(owner, place, name, producer, messages, version)
        topic = await self._broker.topics.load(place, create=place != name, principal=self._principal)
        outcomes = await self._publish_here(topic, producer, messages, version, address)
        return [_ack(one, place, message) for one, message in zip(outcomes, messages, strict=True)]

    async def _publish_here(
        self, topic: AnyTopic, name: str, messages: Sequence[_Encoded], version: int, address: str
    ) -> Sequence[Outcome]:
        broker = self._broker
        self._check_rates(topic)
        await broker.check_producer(topic, encrypts=False)
        visitor = RequestProducer(
            topic,
            name or broker.producer_names.next(),
            user_provided_name=bool(name),
            schema_version=b"" if version == _NO_SCHEMA else version_bytes(version),
            principal=self._principal,
            address=address,
        )
        producer = visitor.producer
        check_not_moved(topic)
        await topic.producers.add(producer)
        try:
            entries: list[bytes] = []
            ids: list[int] = []
            now = broker.io.clock.wall_ms()
            last = topic.last_sequence_id(producer.name)

            def add(message: _Encoded) -> None:
                nonlocal last
                given = message.written.sequence_id
                last = last + 1 if given is None else given
                ids.append(last)
                entries.append(message.entry(producer.name, last, now, producer.schema_version))

            await each(broker.io, "requests", messages, add)
            outcomes = await visitor.publish(entries, ids)
        finally:
            topic.producers.remove(producer)
        await self._wait_for_rates(topic, len(entries), sum(map(len, entries)))
        return outcomes

    def _limiters(self, topic: AnyTopic) -> list[PublishLimiter]:
        group = topic.group.publish if topic.group is not None else None
        found = (topic.publish_limiter, self._broker.limits.publish_limiter, group)
        return [limiter for limiter in found if limiter is not None]

    def _check_rates(self, topic: AnyTopic) -> None:
        """Checks whether a request to publish can be accepted under the topic's rate limits.

        :raises TooManyRequests: because of earlier publishes, the wait for a rate limit would be longer than
            :data:`_MOST_SECONDS_FOR_RATES`
        """
        now = self._broker.io.clock.monotonic()
        debt = max((limiter.debt(now) for limiter in self._limiters(topic)), default=0.0)
        if debt > _MOST_SECONDS_FOR_RATES:
            raise TooManyRequests(
                f"The publish rate of {topic.name} is exceeded: no messages are accepted for "
                f"{debt:.0f} seconds"
            )

    async def _wait_for_rates(self, topic: AnyTopic, messages: int, size: int) -> None:
        """Waits until the published messages are within the rate limits, at most
        :data:`_MOST_SECONDS_FOR_RATES`; the rest of a longer wait delays later requests."""
        now = self._broker.io.clock.monotonic()
        wait = max((limiter.take(messages, size, now) for limiter in self._limiters(topic)), default=0.0)
        if wait > 0:
            await sleep(self._broker.io.loop, min(wait, _MOST_SECONDS_FOR_RATES))

    async def _publish_elsewhere(
        self,
        owner: Owner,
        place: TopicName,
        name: TopicName,
        producer: str,
        messages: Sequence[_Encoded],
        version: int,
    ) -> Sequence[Json]:
        form = {
            **({"valueSchema": _BYTES} if version == _NO_SCHEMA else {"schemaVersion": version}),
            **({"producerName": producer} if producer else {}),
            "messages": [message.written.form for message in messages],
        }
        path = f"/topics/{name.domain.value}/{name.namespace_name}/{quote(name.local, '')}"
        if place != name:
            path += f"/partitions/{place.partition_index}"
        query = {"addSchema": "false"} if version == _NO_SCHEMA else None
        answer = await ask(self._broker.beside, owner, "POST", path, query, body=json.dumps(form).encode())
        told: Sequence[Json] = answer.json()["messagePublishResults"]
        return told


def _encoded(schema: SchemaData, messages: Sequence[WrittenMessage]) -> list[_Encoded]:
    contents = WrittenContents(schema)
    found = []
    for message in messages:
        key = contents.key(message.key) if message.key is not None else None
        content = contents.content(message.content, message.key)
        found.append(_Encoded(message, content, key, contents.encodes_keys))
    return found


def _ack(outcome: Outcome, place: TopicName, message: _Encoded) -> Json:
    """Returns ``ProducerAck``: the outcome of one message."""
    index = place.partition_index
    if isinstance(outcome, BrokerError):
        code = _TRY_AGAIN if isinstance(outcome, ServiceNotReady) else _REFUSED
        told = {"errorMsg": str(outcome), "messageId": str(index)}
    else:
        code = 0
        told = {"messageId": f"{outcome[0]}:{outcome[1]}:{index}"}
    context = message.written.context
    given = {} if context is None else {"context": context}
    return {**told, **given, "errorCode": code, "schemaVersion": 0}
