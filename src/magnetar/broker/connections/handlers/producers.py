"""Opening and closing producers, and SENDs that the fast path does not handle."""

from __future__ import annotations

from magnetar.broker.connections import answers, permissions
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.permissions import guard
from magnetar.broker.publishing.producer import AccessMode, OpeningProducer, Producer
from magnetar.broker.schemas.data import from_wire
from magnetar.broker.topics.any_topic import check_not_moved, for_producer
from magnetar.broker.topics.shadow import ShadowTopic
from magnetar.errors import (
    AuthorizationFailure,
    BrokerError,
    InvalidRequest,
    NotAllowed,
    ServiceNotReady,
    TopicMigrated,
)
from magnetar.managed_ledger.position import LATEST
from magnetar.naming.replicators import remote_cluster_of
from magnetar.protocol.frames import signed
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandCloseProducer, CommandProducer


async def open_producer(connection: Connection, request: CommandProducer) -> None:
    """Handles PRODUCER → PRODUCER_SUCCESS; with WaitForExclusive, a second PRODUCER_SUCCESS follows once the
    producer has access."""
    producer_id = signed(request.producer_id)
    known = connection.session.producers.get(producer_id)
    if known is not None and known.epoch >= request.epoch and not known.closed:
        _send_success(connection, request.request_id, known, ready=True)
        return
    if producer_id in connection.session.opening_producers:
        raise ServiceNotReady("Producer is already present on the connection")
    most = connection.broker.settings.max_producers_per_connection
    if most and len(connection.session.producers) + len(connection.session.opening_producers) >= most:
        raise NotAllowed(
            f"The connection already has {most} producers, the maximum (magnetarMaxProducersPerConnection); "
            "close some of them first"
        )
    opening = connection.session.opening_producers[producer_id] = OpeningProducer()
    try:
        await _open(connection, request, opening)
    except TopicMigrated as moved:
        if not connection.session.follows_topics:
            raise
        # TOPIC_MIGRATED replaces the response; the request itself gets none (PIP-188).
        connection.send(answers.producer_migrated(producer_id, moved.url, moved.url_tls))
        connection.send(answers.close_producer(producer_id))
    finally:
        if connection.session.opening_producers.get(producer_id) is opening:
            del connection.session.opening_producers[producer_id]


def _is_wanted(connection: Connection, producer_id: int, opening: OpeningProducer) -> bool:
    """Whether the client still wants the producer: it has neither disconnected nor sent CLOSE_PRODUCER."""
    return not connection.closed and connection.session.opening_producers.get(producer_id) is opening


async def _open(connection: Connection, request: CommandProducer, opening: OpeningProducer) -> None:
    broker, principal = connection.broker, connection.session.principal
    producer_id = signed(request.producer_id)
    name = broker.parse_topic(request.topic)
    standing = permissions.Standing(connection, permissions.PRODUCER, request)
    await standing.check()
    if request.txn_enabled and broker.settings.topic.transactions is None:
        raise NotAllowed(
            "Transactions are not enabled; set transactionCoordinatorEnabled=true for the broker"
        )
    if int(request.producer_access_mode) not in {int(mode) for mode in AccessMode}:
        raise InvalidRequest(f"unknown producer access mode {request.producer_access_mode}")
    async with connection.requests.opening():
        topic = await broker.topics.load(name, create=True, principal=principal)
    remote_cluster = remote_cluster_of(broker.settings.topic.replicator_prefix, request.producer_name)
    if remote_cluster == broker.settings.cluster:
        raise NotAllowed(
            f"The producer {request.producer_name} comes from cluster {remote_cluster}, which is this "
            "cluster: correct the service URL in the record of the other cluster"
        )
    # A replicator cannot say whether the original producers encrypted: each of its messages is checked.
    await broker.check_producer(topic, encrypts=request.encrypted or remote_cluster is not None)
    schema = from_wire(request.schema) if request.HasField("schema") else None
    schema_version = await for_producer(broker.schemas, topic, schema)
    if request.initial_subscription_name and name.persistent:
        await topic.subscriptions.subscribe(
            request.initial_subscription_name,
            LATEST,
            {},
            durable=True,
            create=topic.policies.auto_subscriptions,
            principal=principal,
        )
    if not _is_wanted(connection, producer_id, opening):
        return
    producer = opening.producer = Producer(
        topic,
        connection,
        producer_id,
        request.producer_name or broker.producer_names.next(),
        user_provided_name=request.user_provided_producer_name and bool(request.producer_name),
        epoch=request.epoch,
        access_mode=AccessMode(request.producer_access_mode),
        topic_epoch=request.topic_epoch if request.HasField("topic_epoch") else None,
        metadata={pair.key: pair.value for pair in request.metadata},
        connected_ms=broker.io.clock.wall_ms(),
        schema_version=schema_version,
        principal=principal,
        remote_cluster=remote_cluster,
        by_position=(
            remote_cluster is not None
            and name.persistent
            and connection.session.supports_source_positions
            and not isinstance(topic, ShadowTopic)
        ),
    )
    check_not_moved(topic)
    admitted = await topic.producers.add(producer)
    if admitted is not None:
        _send_success(connection, request.request_id, producer, ready=False)
        with connection.requests.set_aside():
            granted = await admitted
        if not granted:
            return
    try:
        await standing.check()
        await guard(connection.broker.authorizer, principal, producer)
        check_not_moved(topic)
    except BaseException:
        # Any error, also of the metadata store: otherwise the producer's name would stay taken.
        topic.producers.remove(producer)
        raise
    if producer.closed or not _is_wanted(connection, producer_id, opening):
        topic.producers.remove(producer)
        return
    former = connection.session.producers.get(producer_id)
    connection.session.producers[producer_id] = producer
    if former is not None:
        former.topic.producers.remove(former)
    _send_success(connection, request.request_id, producer, ready=True)


def _send_success(connection: Connection, request_id: int, producer: Producer, *, ready: bool) -> None:
    answer = BaseCommand(type=BaseCommand.PRODUCER_SUCCESS)
    success = answer.producer_success
    success.request_id = request_id
    success.producer_name = producer.name
    success.last_sequence_id = producer.topic.last_sequence_id(producer.name)
    success.schema_version = producer.schema_version
    if producer.topic_epoch is not None and producer.access_mode is not AccessMode.Shared:
        success.topic_epoch = producer.topic_epoch
    success.producer_ready = ready
    connection.send(answer)


async def close_producer(connection: Connection, request: CommandCloseProducer) -> None:
    """Handles CLOSE_PRODUCER → SUCCESS once all the producer's messages are durable or refused."""
    producer_id = signed(request.producer_id)
    producer = connection.session.producers.pop(producer_id, None)
    opening = connection.session.opening_producers.pop(producer_id, None)
    if opening is not None and opening.producer is not None:
        opening.producer.topic.producers.remove(opening.producer)
    if producer is not None:
        connection.session.remember_closed(producer_id)
        await producer.topic.producers.drained((producer,))
        producer.topic.producers.remove(producer)
    connection.send_success(request.request_id)


def send_slowly(connection: Connection, command: BaseCommand) -> None:
    """Handles a SEND that the fast path does not handle: a replicator's marker, or an entry with its position
    for a shadow topic. Refuses any other SEND.
    """
    send = command.send
    producer_id = signed(send.producer_id)
    producer = connection.session.producers.get(producer_id)
    if producer is None or producer.closed:
        connection.publishing.unknown_producer(producer_id, producer)
        return
    error: BrokerError
    if send.HasField("txnid_most_bits") or send.HasField("txnid_least_bits"):
        error = NotAllowed("SEND has only one of txnid_most_bits and txnid_least_bits")
    elif send.marker and producer.remote_cluster is not None and not send.HasField("message_id"):
        connection.publishing.publish_marker(
            producer, signed(send.sequence_id), connection.input.reader.entry
        )
        return
    elif send.marker:
        error = NotAllowed("Only brokers may send markers")
    elif send.HasField("message_id"):
        if isinstance(producer.topic, ShadowTopic) and not producer.guarded:
            position = signed(send.message_id.ledgerId), signed(send.message_id.entryId)
            connection.publishing.publish_placed(producer, send, position, connection.input.reader.entry)
            return
        error = (
            AuthorizationFailure(producer.guarded)
            if producer.guarded
            else NotAllowed("Only shadow topic supports sending messages with messageId")
        )
    elif send.num_messages < 1:
        error = NotAllowed(f"num_messages of SEND must be at least 1, but is {send.num_messages}")
    else:
        error = NotAllowed("SEND has a field that this broker does not know")
    connection.publishing.refuse(producer_id, send.sequence_id, error)
