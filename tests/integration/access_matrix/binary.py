"""The binary protocol as any column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from raw_client import EARLIEST, FROM_BROKER, Client, Refused, command
from raw_connection import RawConnection
from raw_transactions import connect_to_coordinator

from access_matrix.calls import fresh_address
from access_matrix.columns import SUPERUSER, Column
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandSubscribe,
    Schema,
    ServerError,
    Subscription,
    TxnAction,
)

_numbers = count(1)
_NO_LOW_WATER_MARK = 2**64 - 1
NAMESPACES = ("matrix/shared", "matrix/bare", "matrix/standalone/shared")
"""Those of all topics; the second one grants nothing."""


def _claim(column: Column) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if column.token:
        fields |= {"auth_method_name": "token", "auth_data": column.token.encode()}
    if column.original:
        fields["original_principal"] = column.original
    return fields


def connect(port: int, column: Column) -> Client:
    """A client that has said who it is."""
    return Client(port, **_claim(column))


def publish(port: int, topic: str) -> tuple[int, int]:
    """Two messages, by the superuser; where the last is stored."""
    client = connect(port, SUPERUSER)
    try:
        producer, _answer = client.produce(topic)
        where = client.published(producer, [b"a", b"b"])
        client.close_producer(producer)
        return where[-1]
    finally:
        client.close()


OK = "ok"
CLOSED = "closed"
NEW = "new"
"""Of something that is not there yet."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a topic of a row lies."""

    namespace: str
    domain: str = "persistent"
    partition: bool = False
    granted: bool = False
    """The topic itself has permissions."""
    exists: bool = True


PLACES: Mapping[str, Place] = {
    "plain": Place("matrix/shared"),
    "granted": Place("matrix/bare", granted=True),
    "partition": Place("matrix/bare", partition=True, granted=True),
    "non-persistent": Place("matrix/shared", "non-persistent"),
    "non-persistent-granted": Place("matrix/bare", "non-persistent", granted=True),
    "legacy": Place("matrix/standalone/shared"),
    NEW: Place("matrix/shared", exists=False),
}


def connected(port: int, column: Column) -> str:
    """What CONNECT is answered."""
    connection = RawConnection(port, fresh_address() if column.unknown else "")
    try:
        connection.send(
            command(BaseCommand.CONNECT, client_version="raw", protocol_version=21, **_claim(column))
        )
        received = connection.receive()
        if received is None:
            return CLOSED
        answer = received[0]
        if answer.type == BaseCommand.CONNECTED:
            return OK
        assert answer.type == BaseCommand.ERROR, answer
        assert answer.error.request_id == FROM_BROKER
        return ServerError.Name(answer.error.error)
    finally:
        connection.close()


Ask = Callable[[Client, str], str]


def _asked(client: Client, kind: int, answer: int, **fields: Any) -> str:
    """The outcome of a request."""
    try:
        response = client.ask(kind, answer, **fields)
    except Refused as refused:
        return ServerError.Name(refused.code)  # type: ignore[arg-type]
    except ConnectionError:
        return CLOSED
    if getattr(response, "error_code", 0) or _has(response, "error"):
        return ServerError.Name(response.error_code if _has(response, "error_code") else response.error)
    return OK


def _has(message: Any, name: str) -> bool:
    return name in message.DESCRIPTOR.fields_by_name and message.HasField(name)


def _partitions(client: Client, topic: str) -> str:
    return _asked(
        client,
        BaseCommand.PARTITIONED_METADATA,
        BaseCommand.PARTITIONED_METADATA_RESPONSE,
        topic=topic,
        metadata_auto_creation_enabled=True,
    )


def _look_up(client: Client, topic: str) -> str:
    return _asked(client, BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=topic)


def _produce(client: Client, topic: str) -> str:
    return _asked(
        client, BaseCommand.PRODUCER, BaseCommand.PRODUCER_SUCCESS, topic=topic, producer_id=next(_numbers)
    )


def _produce_with_subscription(client: Client, topic: str) -> str:
    return _asked(
        client,
        BaseCommand.PRODUCER,
        BaseCommand.PRODUCER_SUCCESS,
        topic=topic,
        producer_id=next(_numbers),
        initial_subscription_name="initial",
    )


def _subscribe(client: Client, topic: str) -> str:
    return _subscribed(client, topic)[1]


def _subscribed(client: Client, topic: str) -> tuple[int, str]:
    number = next(_numbers)
    outcome = _asked(
        client,
        BaseCommand.SUBSCRIBE,
        BaseCommand.SUCCESS,
        topic=topic,
        subscription="s",
        subType=CommandSubscribe.Exclusive,
        consumer_id=number,
    )
    return number, outcome


def _of_consumer(kind: int, answer: int, **fields: Any) -> Ask:
    """Asks for a consumer: of those who have none the answer to both."""

    def ask(client: Client, topic: str) -> str:
        number, outcome = _subscribed(client, topic)
        then = _asked(client, kind, answer, consumer_id=number, **fields)
        return then if outcome == OK else f"{outcome}/{then}"

    return ask


def _get_schema(client: Client, topic: str) -> str:
    outcome = _asked(client, BaseCommand.GET_SCHEMA, BaseCommand.GET_SCHEMA_RESPONSE, topic=topic)
    return OK if outcome == "TopicNotFound" else outcome


def _add_schema(client: Client, topic: str) -> str:
    schema = Schema(name="s", schema_data=b"", type=Schema.String)
    return _asked(
        client,
        BaseCommand.GET_OR_CREATE_SCHEMA,
        BaseCommand.GET_OR_CREATE_SCHEMA_RESPONSE,
        topic=topic,
        schema=schema,
    )


def _end_on_topic(client: Client, topic: str) -> str:
    return _asked(
        client,
        BaseCommand.END_TXN_ON_PARTITION,
        BaseCommand.END_TXN_ON_PARTITION_RESPONSE,
        topic=topic,
        txnid_most_bits=0,
        txnid_least_bits=0,
        txn_action=TxnAction.COMMIT,
        txnid_least_bits_of_low_watermark=_NO_LOW_WATER_MARK,
    )


def _end_on_subscription(client: Client, topic: str) -> str:
    return _asked(
        client,
        BaseCommand.END_TXN_ON_SUBSCRIPTION,
        BaseCommand.END_TXN_ON_SUBSCRIPTION_RESPONSE,
        subscription=Subscription(topic=topic, subscription="s"),
        txnid_most_bits=0,
        txnid_least_bits=0,
        txn_action=TxnAction.COMMIT,
        txnid_least_bits_of_low_watermark=_NO_LOW_WATER_MARK,
    )


OF_TOPICS: Mapping[str, Ask] = {
    "PARTITIONED_METADATA": _partitions,
    "LOOKUP": _look_up,
    "PRODUCER": _produce,
    "PRODUCER initial-subscription": _produce_with_subscription,
    "SUBSCRIBE": _subscribe,
    "SEEK": _of_consumer(BaseCommand.SEEK, BaseCommand.SUCCESS, message_id=EARLIEST),
    "UNSUBSCRIBE": _of_consumer(BaseCommand.UNSUBSCRIBE, BaseCommand.SUCCESS),
    "GET_LAST_MESSAGE_ID": _of_consumer(
        BaseCommand.GET_LAST_MESSAGE_ID, BaseCommand.GET_LAST_MESSAGE_ID_RESPONSE
    ),
    "GET_SCHEMA": _get_schema,
    "GET_OR_CREATE_SCHEMA": _add_schema,
    "END_TXN_ON_PARTITION": _end_on_topic,
    "END_TXN_ON_SUBSCRIPTION": _end_on_subscription,
}


_COORDINATOR = 0


def load_coordinator(port: int) -> None:
    """Has the broker serve the coordinator of all transactions here."""
    client = connect(port, SUPERUSER)
    topic = f"persistent://pulsar/system/transaction_coordinator_assign-partition-{_COORDINATOR}"
    assert _look_up(client, topic) == OK
    connect_to_coordinator(client)
    client.close()


def _add_topic(client: Client, number: int) -> str:
    return _asked(
        client,
        BaseCommand.ADD_PARTITION_TO_TXN,
        BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
        txnid_most_bits=_COORDINATOR,
        txnid_least_bits=number,
        partitions=["persistent://matrix/shared/none"],
    )


def _add_subscription(client: Client, number: int) -> str:
    return _asked(
        client,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
        BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
        txnid_most_bits=_COORDINATOR,
        txnid_least_bits=number,
        subscription=[Subscription(topic="persistent://matrix/shared/none", subscription="s")],
    )


def _commit(client: Client, number: int) -> str:
    return _end(client, number, TxnAction.COMMIT)


def abort(client: Client, number: int) -> str:
    return _end(client, number, TxnAction.ABORT)


def _end(client: Client, number: int, action: TxnAction) -> str:
    return _asked(
        client,
        BaseCommand.END_TXN,
        BaseCommand.END_TXN_RESPONSE,
        txnid_most_bits=_COORDINATOR,
        txnid_least_bits=number,
        txn_action=action,
    )


OF_TRANSACTIONS: Mapping[str, Callable[[Client, int], str]] = {
    "ADD_PARTITION_TO_TXN": _add_topic,
    "ADD_SUBSCRIPTION_TO_TXN": _add_subscription,
    "END_TXN commit": _commit,
    "END_TXN abort": abort,
}
OWN, OTHERS = "own", "others"
"""Whose transaction it is."""


def _list_topics(client: Client, namespace: str) -> str:
    kind, answer = BaseCommand.GET_TOPICS_OF_NAMESPACE, BaseCommand.GET_TOPICS_OF_NAMESPACE_RESPONSE
    return _asked(client, kind, answer, namespace=namespace)


def _watch_topics(client: Client, namespace: str) -> str:
    return _asked(
        client,
        BaseCommand.WATCH_TOPIC_LIST,
        BaseCommand.WATCH_TOPIC_LIST_SUCCESS,
        namespace=namespace,
        watcher_id=next(_numbers),
        topics_pattern="persistent://.*",
    )


OF_NAMESPACES: Mapping[str, Ask] = {
    "GET_TOPICS_OF_NAMESPACE": _list_topics,
    "WATCH_TOPIC_LIST": _watch_topics,
}


def commands() -> Sequence[tuple[str, str]]:
    """Commands, and what each is asked of: a place of a topic, a namespace, or the owner of a transaction."""
    of_topics = [(name, place) for name in OF_TOPICS for place in PLACES]
    of_namespaces = [(name, space) for name in OF_NAMESPACES for space in NAMESPACES]
    return of_topics + of_namespaces + [(name, owner) for name in OF_TRANSACTIONS for owner in (OWN, OTHERS)]
