"""What brokers of other clusters ask for, as any column; Apache Pulsar has it done by whoever may produce."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count

from raw_client import Client, Refused

from access_matrix.binary import connect
from access_matrix.calls import Calls
from access_matrix.columns import COLUMNS, SETTINGS, SUPERUSER, Column, token
from access_matrix.objects import SHARED, TENANT, namespace_path
from magnetar.naming.replicators import SHADOW_SOURCE, SOURCE_POSITION
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageIdData, MessageMetadata, ServerError

SETTINGS_WITH_ROLES: Mapping[str, str] = {**SETTINGS, "magnetarReplicationRoles": "broker-of-east,idle"}
TOPIC = f"persistent://{TENANT}/{SHARED}/replicated"

REPLICATOR = Column("replicator", token("broker-of-east"))
"""May produce, too."""
MORE = (
    REPLICATOR,
    Column("replicator-that-may-not-produce", token("idle")),
    Column("proxied-replicator", token("proxy"), original="broker-of-east"),
)
ALL = (*COLUMNS, *MORE)
ALLOWED = frozenset({"superuser", "proxied-superuser", REPLICATOR.name})

_numbers = count(1)
_stored: list[tuple[int, int]] = []


def let_produce(calls: Calls) -> None:
    """Gives the replicator the permission that its cluster needs, beside its place in the setting."""
    path = f"{namespace_path(f'{TENANT}/{SHARED}')}/permissions/broker-of-east"
    status, _answer = calls.ask(SUPERUSER, "POST", path, ["produce"])
    assert status < 300


def make_shadow(calls: Calls, port: int) -> None:
    """A topic with the message that :func:`_placed` tells its shadow of."""
    client = connect(port, SUPERUSER)
    producer, _answer = client.produce(f"{TOPIC}-source")
    [stored] = client.published(producer, [b"payload"])
    client.close()
    _stored.append(stored)
    path = f"/admin/v2/{TOPIC}-shadow".replace("://", "/")
    status, _answer = calls.ask(SUPERUSER, "PUT", path, {SHADOW_SOURCE: f"{TOPIC}-source"})
    assert status < 300


def _named(client: Client) -> str:
    """A producer with a name of replicators, which nobody else has."""
    name = f"pulsar.repl.east{next(_numbers)}-->standalone"
    client.produce(TOPIC, producer_name=name, user_provided_producer_name=True)
    return "ok"


def _sent(client: Client, metadata: MessageMetadata) -> str:
    producer, _answer = client.produce(TOPIC)
    client.publish(producer, 1, build_entry(metadata, b"payload"))
    client.publish(producer, 2, build_entry(_metadata(2), b"payload"))
    assert client.take(BaseCommand.SEND_RECEIPT, sequence_id=2)
    if client.count_kept(BaseCommand.SEND_ERROR):
        error = client.take(BaseCommand.SEND_ERROR)
        assert error.sequence_id == 1
        return ServerError.Name(error.error)
    return "ok" if client.take(BaseCommand.SEND_RECEIPT).sequence_id == 1 else "lost"


def _metadata(sequence_id: int) -> MessageMetadata:
    return MessageMetadata(producer_name="p", sequence_id=sequence_id, publish_time=1)


def _replicated(client: Client) -> str:
    metadata = _metadata(1)
    metadata.replicated_from = "east"
    metadata.properties.add(key=SOURCE_POSITION, value="7:0")
    return _sent(client, metadata)


def _marker(client: Client) -> str:
    metadata = _metadata(1)
    metadata.marker_type = 13
    return _sent(client, metadata)


def _placed(client: Client) -> str:
    """An entry with the position that it has at the source of a shadow topic."""
    producer, _answer = client.produce(f"{TOPIC}-shadow")
    ledger_id, entry_id = _stored[-1]
    place = MessageIdData(ledgerId=ledger_id, entryId=entry_id)
    client.publish(producer, 1, build_entry(_metadata(1), b"payload"), message_id=place)
    client.barrier()
    if client.count_kept(BaseCommand.SEND_ERROR):
        return ServerError.Name(client.take(BaseCommand.SEND_ERROR).error)
    return "ok" if client.take(BaseCommand.SEND_RECEIPT).sequence_id == 1 else "lost"


ASKED: Mapping[str, Callable[[Client], str]] = {
    "PRODUCER with a replicator's name": _named,
    "SEND with replicated_from": _replicated,
    "SEND with a marker type": _marker,
    "SEND with a message id to a shadow topic": _placed,
}


def outcome_of(client: Client, what: str) -> str:
    try:
        return ASKED[what](client)
    except Refused as refused:
        return ServerError.Name(refused.code)  # type: ignore[arg-type]
