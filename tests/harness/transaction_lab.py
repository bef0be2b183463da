"""Apache Pulsar with transactions, and raw connections to it, with everything that is said recorded."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import transaction_bytes
from apache_standalone import ApacheStandalone
from google.protobuf.json_format import MessageToDict
from ports import free_port
from raw_connection import RawConnection, sub_message
from recording_proxy import Frame, RecordingProxy, decoded_entry, decoded_frame

from magnetar.managed_ledger.records_pb2 import ManagedCursorInfo, ManagedLedgerInfo
from magnetar.metadata.zookeeper import messages
from magnetar.metadata.zookeeper.messages import JuteReader, Operation
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata, SingleMessageMetadata

Fields = dict[str, Any]
TOPICS = "persistent://public/default/"
_SYSTEM = "pulsar/system/persistent"
_ANSWER_SECONDS = 8.0


class Talk:
    """One connection to the broker, recorded; a step has a name and ends when its answer is there."""

    def __init__(self, port: int, frames: list[Frame], case: str) -> None:
        self.port, self.frames, self.case = port, frames, case
        self._raw = RawConnection(port)
        self._request = 0
        self._sequences: dict[int, int] = {}
        self.tell("CONNECT", client_version="recorder", protocol_version=21)
        self.hear("CONNECTED")

    def tell(self, kind: str, entry: bytes = b"", **fields: object) -> int:
        """Sends a command; its request id, for kinds that have one."""
        command = BaseCommand(type=kind)
        _name, body = sub_message(command)
        body.SetInParent()
        if "request_id" in body.DESCRIPTOR.fields_by_name and "request_id" not in fields:
            self._request += 1
            fields["request_id"] = self._request
        for name, value in fields.items():
            if isinstance(value, list):
                for each in value:
                    if isinstance(each, dict):
                        getattr(body, name).add(**each)
                    else:
                        getattr(body, name).append(each)
            elif isinstance(value, dict):
                getattr(body, name).CopyFrom(type(getattr(body, name))(**value))
            else:
                setattr(body, name, value)
        data = RawConnection.frame(command, entry)
        self.frames.append({"case": self.case, "from": "client"} | decoded_frame(data))
        self._raw.send_bytes(data)
        return self._request

    def hear(self, *kinds: str, seconds: float = _ANSWER_SECONDS) -> Any:
        """Keeps what comes until a command of one of the kinds, or nothing; that command's fields."""
        end = time.monotonic() + seconds
        while True:
            try:
                received = self._raw.receive(max(end - time.monotonic(), 0.01))
            except TimeoutError:
                self.frames.append({"case": self.case, "from": "broker", "silent": True})
                return None
            if received is None:
                self.frames.append({"case": self.case, "from": "broker", "closed": True})
                return None
            command, entry = received
            kind = BaseCommand.Type.Name(command.type)
            if kind == "PING":
                self._raw.send(BaseCommand(type=BaseCommand.PONG, pong={}))
                continue
            frame = decoded_frame(RawConnection.frame(command, entry))
            self.frames.append({"case": self.case, "from": "broker"} | frame)
            if kind in kinds:
                return sub_message(command)[1]

    def ask(self, kind: str, entry: bytes = b"", **fields: object) -> Any:
        """A request and its answer."""
        self.tell(kind, entry, **fields)
        answer = {
            "SUBSCRIBE": ("SUCCESS",),
            "PRODUCER": ("PRODUCER_SUCCESS",),
            "ACK": ("ACK_RESPONSE",),
            "SEND": ("SEND_RECEIPT", "SEND_ERROR"),
            "SEEK": ("SUCCESS",),
            "TC_CLIENT_CONNECT_REQUEST": ("TC_CLIENT_CONNECT_RESPONSE",),
        }.get(kind, (f"{kind}_RESPONSE",))
        return self.hear(*answer, "ERROR")

    def begin(self, milliseconds: int = 600_000) -> Fields:
        """A new transaction: the fields that name it. The command's field is in milliseconds."""
        made = self.ask("NEW_TXN", tc_id=0, txn_ttl_seconds=milliseconds)
        return named(made)

    def look_up(self, topic: str) -> None:
        """Makes the broker the owner of the topic's bundle, unless it is already."""
        self.ask("LOOKUP", topic=topic)

    def producer(self, number: int, topic: str) -> Any:
        self.look_up(TOPICS + topic)
        fields: Fields = {"producer_id": number, "producer_name": f"r{number}", "topic": TOPICS + topic}
        return self.ask("PRODUCER", **fields, txn_enabled=True)

    def send(self, number: int, text: str, txn: Fields | None = None, marked: bool = True) -> Any:
        """:param marked: whether the message's metadata has the transaction's id, too"""
        sequence = self._next(number)
        metadata = MessageMetadata(producer_name=f"r{number}", sequence_id=sequence, publish_time=1)
        for name, value in (txn or {}).items() if marked else ():
            setattr(metadata, name, value)
        entry = build_entry(metadata, text.encode())
        return self.ask("SEND", entry, producer_id=number, sequence_id=sequence, **(txn or {}))

    def send_batch(self, number: int, texts: list[str]) -> Any:
        sequence = self._next(number)
        first = MessageMetadata(producer_name=f"r{number}", sequence_id=sequence, publish_time=1)
        first.num_messages_in_batch = len(texts)
        payload = b"".join(_single(text.encode()) for text in texts)
        fields = {"producer_id": number, "sequence_id": sequence, "num_messages": len(texts)}
        return self.ask("SEND", build_entry(first, payload), **fields)

    def _next(self, number: int) -> int:
        self._sequences[number] = self._sequences.get(number, -1) + 1
        return self._sequences[number]

    def subscribe(self, number: int, topic: str, name: str, kind: int = 1, permits: int = 100) -> Any:
        fields: Fields = {"consumer_id": number, "topic": TOPICS + topic, "subscription": name}
        self.look_up(TOPICS + topic)
        answer = self.ask("SUBSCRIBE", **fields, subType=kind, initialPosition=1, consumer_name=f"c{number}")
        if permits:
            self.tell("FLOW", consumer_id=number, messagePermits=permits)
        return answer

    def acknowledge(self, number: int, at: list[Fields], txn: Fields | None = None, kind: int = 0) -> Any:
        return self.ask("ACK", consumer_id=number, ack_type=kind, message_id=at, **(txn or {}))

    def messages(self, seconds: float = 1.5) -> list[Any]:
        """Identifiers of what is delivered until nothing more comes."""
        first = len(self.frames)
        while self.hear("MESSAGE", seconds=seconds) is not None:
            pass
        return [
            each["fields"]["message_id"] for each in self.frames[first:] if each.get("command") == "MESSAGE"
        ]

    def enlist(self, txn: Fields, topic: str, subscription: str | None = None) -> Any:
        if subscription is None:
            return self.ask("ADD_PARTITION_TO_TXN", **txn, partitions=[TOPICS + topic])
        where = {"topic": TOPICS + topic, "subscription": subscription}
        return self.ask("ADD_SUBSCRIPTION_TO_TXN", **txn, subscription=[where])

    def end(self, txn: Fields, action: int) -> Any:
        """:param action: 0 commit, 1 abort"""
        return self.ask("END_TXN", **txn, txn_action=action)

    def close(self) -> None:
        self._raw.close()


def _single(text: bytes) -> bytes:
    metadata = SingleMessageMetadata(payload_size=len(text)).SerializeToString()
    return struct.pack(">I", len(metadata)) + metadata + text


def named(made: Any) -> Fields:
    """The fields that name the transaction of a NEW_TXN_RESPONSE."""
    return {"txnid_most_bits": made.txnid_most_bits, "txnid_least_bits": made.txnid_least_bits}


def at(message_id: Any) -> Fields:
    """A message id as the fields of an acknowledgement."""
    if isinstance(message_id, dict):
        return {"ledgerId": int(message_id["ledgerId"]), "entryId": int(message_id["entryId"])}
    return {"ledgerId": message_id.ledgerId, "entryId": message_id.entryId}


COMMIT, ABORT = 0, 1


class Lab:
    """A server, the proxy through which it is reached, and the files that come out of it."""

    def __init__(self, folder: Path, into: Path, **settings: object) -> None:
        self.into = into
        port = free_port()
        self.server = ApacheStandalone(folder, port, **settings)
        self.proxy = RecordingProxy(self.server.port, port)
        self.proxy.name = lambda: "broker itself"

    def start(self, transactions: bool = True) -> None:
        self.server.settings["transactionCoordinatorEnabled"] = str(transactions).lower()
        self.server.start()
        deadline = time.monotonic() + 60
        while transactions and time.monotonic() < deadline:
            if self.server.ask("GET", "/admin/v3/transactions/coordinators")[0] == 200:
                return
            time.sleep(0.3)

    def write(self, name: str, rows: list[Any]) -> None:
        with (self.into / name).open("w") as file:
            for row in rows:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{name}: {len(rows)} rows", flush=True)

    def http(self, method: str, path: str, body: bytes | None = None) -> Fields:
        """A request with its answer as a row; the headers are those of Pulsar's own."""
        connection = HTTPConnection("127.0.0.1", self.server.http_port, timeout=12)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, HTTPException) as error:
            return {"request": f"{method} {path}", "failed": str(error)}
        finally:
            connection.close()
        row: Fields = {"request": f"{method} {path}", "status": answer.status}
        if body is not None:
            row["body"] = body.decode()
        found = {name: value for name, value in answer.getheaders() if name.lower().startswith("x-pulsar")}
        if found:
            row["headers"] = found
        row.update(_answer(data))
        return row

    def client(self, label: str, command: list[str]) -> list[Frame]:
        """Runs a client program step by step; its frames, and the broker's with itself, by step."""
        frames: list[Frame] = []
        self.proxy.take()
        self.proxy.name = lambda: label
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            case = ""
            for line in process.stdout:
                if not line.startswith("step "):
                    if line.startswith(" "):
                        frames.append({"case": case, "program": line.strip()})
                    continue
                frames += [{"case": case} | frame for frame in self.proxy.take()]
                case = line[5:].strip()
                process.stdin.write("\n")
                process.stdin.flush()
        self.proxy.name = lambda: "broker itself"
        frames += [{"case": case} | frame for frame in self.proxy.take()]
        if process.returncode:
            print(f"{label} ended with {process.returncode} in step {case!r}", file=sys.stderr)
        return frames

    def nodes(self, under: str) -> Iterator[tuple[str, bytes]]:
        """Paths and values of the metadata store, in order."""
        with _zookeeper(self.server.zookeeper_port) as ask:
            pending = [under]
            while pending:
                path = pending.pop()
                reader = ask(Operation.GET_DATA, messages.read(path))
                if reader is None:
                    continue
                yield path, reader.take_bytes() or b""
                children = ask(Operation.GET_CHILDREN, messages.read(path))
                if children is not None:
                    names = [children.take_text() for _ in range(children.take_int())]
                    pending += [f"{path}/{name}" for name in sorted(names, reverse=True)]

    def managed_ledgers(self) -> list[Fields]:
        """Records of managed ledgers and cursors that transactions have a part in."""
        rows: list[Fields] = []
        for space in (_SYSTEM, "public/default/persistent", "public/default/persistent-pending"):
            for path, value in self.nodes(f"/managed-ledgers/{space}"):
                depth = path.removeprefix(f"/managed-ledgers/{space}").count("/")
                if depth == 0 or not value:
                    continue
                kind = ManagedLedgerInfo if depth == 1 else ManagedCursorInfo
                decoded = MessageToDict(kind.FromString(value), preserving_proto_field_name=True)
                rows.append({"path": path, "hex": value.hex(), kind.DESCRIPTOR.name: decoded})
        return rows

    def stored(self) -> list[Fields]:
        """Entries of the logs, of topics and of snapshots, byte for byte, with the decoded form beside."""
        rows: list[Fields] = []
        schemas: dict[str, Fields] = {}
        for info in self.managed_ledgers():
            name = info["path"].removeprefix("/managed-ledgers/")
            if "ManagedLedgerInfo" not in info:
                continue
            for ledger in info["ManagedLedgerInfo"].get("ledgerInfo", []):
                number = int(ledger["ledgerId"])
                for index, entry in enumerate(transaction_bytes.entries(self.server.bookie_port, number)):
                    row = {"managed_ledger": name, "ledger": number, "entry": index, "hex": entry.hex()}
                    rows.append(row | self._decoded(name, entry, schemas))
        return rows

    def _decoded(self, name: str, entry: bytes, schemas: dict[str, Fields]) -> Fields:
        last = name.rpartition("/")[2]
        if last.startswith("__transaction_log_"):
            return transaction_bytes.record("TransactionMetadataEntry", entry)
        if last.endswith("__transaction_pending_ack"):
            return transaction_bytes.record("PendingAckMetadataEntry", entry)
        if last.startswith("__transaction_buffer_snapshot"):
            if last not in schemas:
                topic = name.replace("/persistent/", "/")
                answer = self.http("GET", f"/admin/v2/schemas/{topic}/schema")["answer"]
                schemas[last] = json.loads(answer["data"])
            return transaction_bytes.snapshot(schemas[last], entry)
        return decoded_entry(entry)


def _answer(data: bytes) -> Fields:
    """JSON decoded, text, or the hexadecimal bytes; without Java's stacks."""
    try:
        answer = json.loads(data)
    except ValueError:
        text = data.isascii()
        return {"answer": data.decode().partition("<h3>")[0]} if text else {"hex": data.hex()}
    if isinstance(answer, dict) and isinstance(answer.get("reason"), str):
        answer["reason"] = answer["reason"].partition("\n\tat ")[0]
    return {"answer": answer}


@contextmanager
def _zookeeper(port: int) -> Iterator[Callable[[Operation, bytes], JuteReader | None]]:
    with socket.create_connection(("127.0.0.1", port), 10) as connection:

        def packet(data: bytes) -> bytes:
            connection.sendall(struct.pack(">i", len(data)) + data)
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            return connection.recv(size, socket.MSG_WAITALL)

        packet(messages.connect(0, 30_000, 0, bytes(16)))
        xid = 0

        def ask(operation: Operation, data: bytes) -> JuteReader | None:
            nonlocal xid
            xid += 1
            reader = JuteReader(packet(messages.header(xid, operation) + data))
            return None if messages.take_reply(reader).error else reader

        yield ask
        connection.sendall(struct.pack(">i", 8) + messages.header(xid + 1, Operation.CLOSE_SESSION))
