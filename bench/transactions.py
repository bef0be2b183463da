"""Measures transactions of 100 messages and 100 acknowledgements: CPU of the broker, latency of the commit.

``python -m bench.transactions`` starts a broker (``--server pulsar``: that of Apache Pulsar). It speaks the
protocol frame by frame over one connection, so that no client library counts, and prints figures as JSON. A
run is void unless a consumer gets each message of the committed transactions afterwards.
``docs/measurements/transactions.md`` has results.
"""

from __future__ import annotations

import argparse
import json
import resource
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.conditions import conditions
from bench.generators import Void
from bench.peer_jars import add_jars, chosen_jars
from bench.servers import ApachePulsar, Magnetar, Server
from magnetar.protocol.frames import encode_command, encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import (
    BaseCommand,
    CommandAck,
    CommandLookupTopicResponse,
    CommandSubscribe,
    MessageIdData,
    MessageMetadata,
    Subscription,
    TxnAction,
)

INPUT = "persistent://public/default/inputs"
OUTPUT = "persistent://public/default/outputs"
_COORDINATOR = "persistent://pulsar/system/transaction_coordinator_assign-partition-0"
_TIMEOUT_MS = 3_600_000
_SECONDS = 60.0
_NAMES = {int(number): field.name for number, field in BaseCommand.DESCRIPTOR.fields_by_number.items()}


class Talk:
    """One connection."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), _SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""
        self._requests = 0
        self.tell(BaseCommand.CONNECT, client_version="bench", protocol_version=21)
        self.hear(BaseCommand.CONNECTED)

    def close(self) -> None:
        self._socket.close()

    def command(self, kind: int, **fields: Any) -> BaseCommand:
        made = BaseCommand(type=kind)  # type: ignore[arg-type]
        message = getattr(made, _NAMES[kind])
        message.SetInParent()
        for name, value in fields.items():
            if isinstance(value, list):
                getattr(message, name).extend(value)
            else:
                setattr(message, name, value)
        return made

    def tell(self, kind: int, **fields: Any) -> None:
        self.write(encode_command(self.command(kind, **fields)))

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def hear(self, kind: int) -> Any:
        """Returns the next command of a kind; answers PING, and skips others.

        :raises Void: it is an error, or the broker has left
        """
        while True:
            found = self._next()
            if found.type == BaseCommand.PING:
                self.tell(BaseCommand.PONG)
            elif found.type in (BaseCommand.ERROR, BaseCommand.SEND_ERROR):
                raise Void(str(found))
            elif found.type == kind:
                message = getattr(found, _NAMES[kind])
                if "error" in message.DESCRIPTOR.fields_by_name and message.HasField("error"):
                    raise Void(str(found))
                return message

    def _next(self) -> BaseCommand:
        while True:
            data = self._received
            if len(data) >= 4 and len(data) >= (total := int.from_bytes(data[:4], "big") + 4):
                size = int.from_bytes(data[4:8], "big")
                self._received = data[total:]
                return BaseCommand.FromString(data[8 : 8 + size])
            more = self._socket.recv(1 << 20)
            if not more:
                raise Void("the broker closed the connection")
            self._received += more

    def ask(self, kind: int, answer: int, **fields: Any) -> Any:
        self._requests += 1
        self.tell(kind, request_id=self._requests, **fields)
        return self.hear(answer)

    def find(self, topic: str) -> None:
        """Has the broker own the topic."""
        authoritative = False
        for _again in range(50):
            found = self.ask(
                BaseCommand.LOOKUP, BaseCommand.LOOKUP_RESPONSE, topic=topic, authoritative=authoritative
            )
            if found.response == CommandLookupTopicResponse.Connect:
                return
            authoritative = found.authoritative
            time.sleep(0.1)
        raise Void(f"{topic} is served by no broker")


class Program:
    """Reads, processes and writes in transactions."""

    def __init__(self, talk: Talk, messages: int) -> None:
        self._talk = talk
        self._messages = messages
        self._sequence = 0
        for name in (_COORDINATOR, INPUT, OUTPUT):
            talk.find(name)
        talk.ask(BaseCommand.TC_CLIENT_CONNECT_REQUEST, BaseCommand.TC_CLIENT_CONNECT_RESPONSE, tc_id=0)
        for number, name in ((1, INPUT), (2, OUTPUT)):
            talk.ask(BaseCommand.PRODUCER, BaseCommand.PRODUCER_SUCCESS, topic=name, producer_id=number)
        for number, name in ((1, INPUT), (2, OUTPUT)):
            talk.ask(
                BaseCommand.SUBSCRIBE,
                BaseCommand.SUCCESS,
                topic=name,
                subscription="s",
                subType=CommandSubscribe.Shared,
                consumer_id=number,
                initialPosition=CommandSubscribe.Earliest,
            )

    def publish(self, producer_id: int, ids: dict[str, int]) -> None:
        """Publishes messages of 100 bytes, all in flight at once."""
        frames = []
        for _number in range(self._messages):
            metadata = MessageMetadata(
                producer_name="b", sequence_id=self._sequence, publish_time=int(time.time() * 1000), **ids
            )
            command = self._talk.command(
                BaseCommand.SEND, producer_id=producer_id, sequence_id=self._sequence, **ids
            )
            frames.append(encode_with_payload(command, build_entry(metadata, b"x" * 100)))
            self._sequence += 1
        self._talk.write(b"".join(frames))
        for _number in range(self._messages):
            self._talk.hear(BaseCommand.SEND_RECEIPT)

    def receive(self, consumer_id: int) -> list[MessageIdData]:
        self._talk.tell(BaseCommand.FLOW, consumer_id=consumer_id, messagePermits=self._messages)
        found = []
        for _number in range(self._messages):
            where = self._talk.hear(BaseCommand.MESSAGE).message_id
            found.append(MessageIdData(ledgerId=where.ledgerId, entryId=where.entryId))
        return found

    def acknowledge(self, consumer_id: int, found: list[MessageIdData], ids: dict[str, int]) -> None:
        self._talk.ask(
            BaseCommand.ACK,
            BaseCommand.ACK_RESPONSE,
            consumer_id=consumer_id,
            ack_type=CommandAck.Individual,
            message_id=found,
            **ids,
        )

    def begin(self) -> dict[str, int]:
        begun = self._talk.ask(
            BaseCommand.NEW_TXN, BaseCommand.NEW_TXN_RESPONSE, tc_id=0, txn_ttl_seconds=_TIMEOUT_MS
        )
        ids = {"txnid_most_bits": begun.txnid_most_bits, "txnid_least_bits": begun.txnid_least_bits}
        self._talk.ask(
            BaseCommand.ADD_PARTITION_TO_TXN,
            BaseCommand.ADD_PARTITION_TO_TXN_RESPONSE,
            partitions=[OUTPUT],
            **ids,
        )
        self._talk.ask(
            BaseCommand.ADD_SUBSCRIPTION_TO_TXN,
            BaseCommand.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
            subscription=[Subscription(topic=INPUT, subscription="s")],
            **ids,
        )
        return ids

    def transaction(self) -> float:
        """Carries out one transaction; returns the seconds of its commit."""
        found = self.receive(1)
        ids = self.begin()
        self.publish(2, ids)
        self.acknowledge(1, found, ids)
        began = time.perf_counter()
        self._talk.ask(BaseCommand.END_TXN, BaseCommand.END_TXN_RESPONSE, txn_action=TxnAction.COMMIT, **ids)
        return time.perf_counter() - began


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000, 2)


def measure(server: Server, count: int, messages: int, opened: int) -> dict[str, Any]:
    """:raises Void: a message is missing, or is left"""
    host, port = server.url.removeprefix("pulsar://").rsplit(":", 1)
    talk = Talk(host, int(port))
    program = Program(talk, messages)
    for _number in range(count + count // 10):
        program.publish(1, {})
    for _number in range(count // 10):
        program.transaction()
    began, cpu = time.monotonic(), server.cpu_seconds()
    own = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    commits = [program.transaction() for _number in range(count)]
    seconds, used = time.monotonic() - began, server.cpu_seconds() - cpu
    own = resource.getrusage(resource.RUSAGE_SELF).ru_utime - own
    for _number in range(count + count // 10):
        program.acknowledge(2, program.receive(2), {})
    for consumer in (1, 2):
        stats = talk.ask(
            BaseCommand.CONSUMER_STATS, BaseCommand.CONSUMER_STATS_RESPONSE, consumer_id=consumer
        )
        if stats.msgBacklog > count * 2:
            raise Void(f"consumer {consumer} has {stats.msgBacklog} messages left")
    before = server.resident_mb() * 1e6
    for _number in range(opened):
        program.begin()
    each = (server.resident_mb() * 1e6 - before) / opened if opened else 0
    talk.close()
    return {
        "transactions": count,
        "messages and acknowledgements of each": messages,
        "transactions/s": round(count / seconds, 1),
        "cpu of the broker, ms a transaction": round(used * 1000 / count, 2),
        "commit p50, ms": percentile(commits, 0.5),
        "commit p99, ms": percentile(commits, 0.99),
        "open transactions": opened,
        "resident bytes of an open transaction": round(each),
        "cpu of the generator, share of the time": round(own / seconds, 2),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transactions", type=int, default=500)
    parser.add_argument("--messages", type=int, default=100)
    parser.add_argument("--open", type=int, default=10_000, help="transactions left open in the end")
    parser.add_argument("--server", choices=("magnetar", "pulsar"), default="magnetar")
    add_jars(parser)
    options = parser.parse_args()
    settings = {"transactionCoordinatorEnabled": "true"}
    with tempfile.TemporaryDirectory(prefix="transactions-") as name:
        data = Path(name) / "data"
        server: Server
        if options.server == "magnetar":
            server = Magnetar("magnetar", "Magnetar", "magnetar", data, settings=settings)
        else:
            jars = chosen_jars(options)
            server = ApachePulsar("pulsar", "Apache Pulsar", "pulsar", data, settings=settings, jars=jars)
        try:
            server.start()
            try:
                found = measure(server, options.transactions, options.messages, options.open)
            finally:
                server.stop()
        except Void as error:
            sys.stderr.write(f"void: {error}\n")
            return 1
    sys.stdout.write(json.dumps(conditions() | {"server": server.title} | found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
