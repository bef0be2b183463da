"""The stored forms of Apache Pulsar's transactions: entries of its logs, read from a bookie and decoded."""

from __future__ import annotations

import io
import socket
import struct
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import DecodeError, Message
from recording_proxy import decoded_entry

_READ = 2
_VERSION = 2
_NO_ENTRY, _NO_LEDGER = 2, 1
_CRC32C_BYTES = 4
_BATCHED = b"\x0e\x01\x00\x01"
"""How an entry with several records begins: a magic number and a version, of 16 bits each."""

_TYPES = {
    "u64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "i64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "i32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "text": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}
_ENUMS = {
    "Operation": {"NEW": 0, "ADD_PARTITION": 1, "ADD_SUBSCRIPTION": 2, "UPDATE": 3},
    "Status": {"OPEN": 0, "COMMITTING": 1, "COMMITTED": 2, "ABORTING": 3, "ABORTED": 4},
    "PendingOperation": {"ACK": 1, "COMMIT": 2, "ABORT": 3},
    "AckType": {"Individual": 0, "Cumulative": 1},
}
_MESSAGES = {
    "Subscription": "topic:text subscription:text",
    "TransactionMetadataEntry": (
        "metadata_op:Operation txnid_least_bits:u64 txnid_most_bits:u64 expected_status:Status "
        "new_status:Status partitions:text* subscriptions:Subscription* timeout_ms:u64 start_time:u64 "
        "last_modification_time:u64 max_local_txn_id:u64 owner:text"
    ),
    "BatchedTransactionMetadataEntry": "transaction_logs:TransactionMetadataEntry*",
    "PendingAckMetadata": "ledgerId:u64 entryId:u64 ack_set:i64* batch_size:i32",
    "PendingAckMetadataEntry": (
        "pending_ack_op:PendingOperation ack_type:AckType txnid_least_bits:u64 txnid_most_bits:u64 "
        "pending_ack_metadata:PendingAckMetadata*"
    ),
    "BatchedPendingAckMetadataEntry": "pending_ack_logs:PendingAckMetadataEntry*",
}
"""Fields in the order of their numbers, from 1; a star: repeated."""


def _classes() -> dict[str, type[Message]]:
    file = descriptor_pb2.FileDescriptorProto(name="transaction_bytes.proto", package="t", syntax="proto2")
    for name, values in _ENUMS.items():
        # Names of values are unique within what is around their type: each type has a message around it.
        enum = file.message_type.add(name=name).enum_type.add(name="Value")
        for value, number in values.items():
            enum.value.add(name=value, number=number)
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field in enumerate(fields.split(), 1):
            label, _, kind = field.partition(":")
            repeated = kind.endswith("*")
            kind = kind.rstrip("*")
            added = message.field.add(name=label, number=number, label=3 if repeated else 1)
            if kind in _TYPES:
                added.type = _TYPES[kind]
            else:
                added.type_name = f".t.{kind}.Value" if kind in _ENUMS else f".t.{kind}"
                added.type = added.TYPE_ENUM if kind in _ENUMS else added.TYPE_MESSAGE
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"t.{name}")) for name in _MESSAGES
    }


_CLASSES = _classes()


def record(kind: str, data: bytes) -> dict[str, Any]:
    """An entry of a log decoded.

    :param kind: ``TransactionMetadataEntry`` or ``PendingAckMetadataEntry``
    """
    if data.startswith(_BATCHED):
        kind, data = f"Batched{kind}", data[len(_BATCHED) :]
    message = _CLASSES[kind].FromString(data)
    return {kind: MessageToDict(message, preserving_proto_field_name=True)}


def written_back(fields: dict[str, Any]) -> bytes:
    """The bytes of a decoded entry; the opposite of :func:`record`."""
    ((name, values),) = fields.items()
    body = ParseDict(values, _CLASSES[name]()).SerializeToString()
    return (_BATCHED if name.startswith("Batched") else b"") + body


def snapshot(schema: dict[str, Any], entry: bytes) -> dict[str, Any]:
    """A message of the snapshot topic: metadata, and its Avro record; a deletion has no record."""
    found = decoded_entry(entry)
    payload = bytes.fromhex(found["payload"])
    if payload:
        found["value"] = fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(schema), None)
    return found


def entries(bookie_port: int, ledger: int) -> list[bytes]:
    """The payloads of a ledger's entries, over BookKeeper's protocol, version 2."""
    found: list[bytes] = []
    with socket.create_connection(("127.0.0.1", bookie_port), 10) as connection:
        while True:
            request = struct.pack(">IQQ", _VERSION << 24 | _READ << 16, ledger, len(found))
            connection.sendall(struct.pack(">I", len(request)) + request)
            answer = _exactly(connection, struct.unpack(">I", _exactly(connection, 4))[0])
            _header, code, _ledger, _entry = struct.unpack_from(">IIQQ", answer)
            if code in (_NO_ENTRY, _NO_LEDGER):
                return found
            if code != 0:
                raise OSError(f"the bookie answers {code} for entry {len(found)} of ledger {ledger}")
            # In front: ledger, entry, last confirmed entry and length, of 8 bytes each, then the checksum.
            found.append(answer[24 + 32 + _CRC32C_BYTES :])


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise DecodeError(f"the connection ended {count - len(data)} bytes early")
        data += piece
    return data
