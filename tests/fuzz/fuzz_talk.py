"""What a hostile client says next: half sense and half nonsense, with a memory of what it was told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from fuzz_wire import KINDS, Wire, ack_kind, command_bytes, entry, frame, mutated, tagged, varint

from magnetar.protocol.pulsar_api_pb2 import BaseCommand

_RECORDED = Path(__file__).parent.parent / "unit" / "protocol" / "data" / "conversations.json"

TOPICS = [f"persistent://public/default/f{number}" for number in range(12)]
TOPICS += [f"non-persistent://public/default/n{number}" for number in range(4)]
SUBSCRIPTIONS = ["s0", "s1", "s2"]

_WEIGHTS = {
    BaseCommand.SEND: 30,
    BaseCommand.PRODUCER: 8,
    BaseCommand.SUBSCRIBE: 10,
    BaseCommand.FLOW: 12,
    BaseCommand.ACK: 18,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES: 4,
    BaseCommand.CLOSE_PRODUCER: 2,
    BaseCommand.CLOSE_CONSUMER: 2,
    BaseCommand.UNSUBSCRIBE: 1,
    BaseCommand.SEEK: 2,
    BaseCommand.CONSUMER_STATS: 2,
    BaseCommand.GET_LAST_MESSAGE_ID: 2,
    BaseCommand.PING: 1,
    BaseCommand.PONG: 1,
    BaseCommand.LOOKUP: 1,
    BaseCommand.PARTITIONED_METADATA: 1,
    BaseCommand.GET_TOPICS_OF_NAMESPACE: 1,
}


def recorded_frames() -> list[bytes]:
    """What official clients sent, byte for byte."""
    frames = json.loads(_RECORDED.read_text())["frames"]
    return [
        bytes.fromhex(each["hex"])
        for each in frames
        if each["from"] == "client" and not each["hex"].endswith("...")
    ]


_OF_CONSUMERS = (
    BaseCommand.FLOW,
    BaseCommand.ACK,
    BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
    BaseCommand.SEEK,
    BaseCommand.UNSUBSCRIBE,
    BaseCommand.CONSUMER_STATS,
    BaseCommand.GET_LAST_MESSAGE_ID,
)

_recorded = recorded_frames()


class Talker:
    """One client; :meth:`hear` tells it what the broker answered.

    :param sense: 0 … 1, how often it says what could be meant
    """

    def __init__(self, random: Random, sense: float) -> None:
        self._random = random
        self._wire = Wire(random, sense)
        self._sense = sense
        self.positions: list[tuple[int, int]] = []
        self._requests = 0
        self._sequence = 0
        self.producers: list[int] = []
        self.consumers: list[int] = []
        self._asked: dict[int, tuple[list[int], int]] = {}
        self._topics = random.sample(TOPICS, 2)
        self._kinds = list(_WEIGHTS)
        self._weights = list(_WEIGHTS.values())
        self._choices = self._sensible_choices()

    def hear(self, command: BaseCommand) -> bool:
        """Remembers what is open and where messages are; answers whether permits are to be given."""
        if command.type == BaseCommand.MESSAGE:
            where = command.message.message_id
            self.positions.append((where.ledgerId, where.entryId))
        elif command.type == BaseCommand.SEND_RECEIPT:
            where = command.send_receipt.message_id
            if not self.positions or self._random.random() < 0.1:
                self.positions.append((where.ledgerId, where.entryId))
        elif command.type == BaseCommand.PRODUCER_SUCCESS:
            self._opened(command.producer_success.request_id)
        elif command.type == BaseCommand.SUCCESS:
            return self._opened(command.success.request_id)
        elif command.type == BaseCommand.CLOSE_PRODUCER:
            self._closed(self.producers, command.close_producer.producer_id)
        elif command.type == BaseCommand.CLOSE_CONSUMER:
            self._closed(self.consumers, command.close_consumer.consumer_id)
        return False

    def _opened(self, request_id: int) -> bool:
        known, number = self._asked.pop(request_id, (None, 0))
        if known is None:
            return False
        known.append(number)
        return known is self.consumers

    @staticmethod
    def _closed(known: list[int], number: int) -> None:
        while number in known:
            known.remove(number)

    def start_anew(self) -> None:
        """Its connection is another one."""
        self.producers.clear()
        self.consumers.clear()
        self._asked.clear()

    # What makes sense in a field

    def _sensible_choices(self) -> dict[str, Callable[[], Any]]:
        random = self._random

        def rarely(value: Callable[[], Any], often: float = 0.05) -> Callable[[], Any]:
            return lambda: value() if random.random() < often else None

        return {
            "topic": lambda: random.choice(self._topics),
            "subscription": lambda: random.choice(SUBSCRIPTIONS),
            "subType": lambda: random.choice((0, 1, 1, 1)),
            "producer_id": lambda: self._one_of(self.producers),
            "consumer_id": lambda: self._one_of(self.consumers),
            "request_id": self._request,
            "sequence_id": self._next_sequence,
            "ledgerId": lambda: 0,
            "client_version": lambda: "fuzz",
            "protocol_version": lambda: 21,
            "messagePermits": lambda: random.choice((1, 2, 10, 100, 1000, 2**32 - 1)),
            "ack_type": lambda: ack_kind(random),
            "message_id": self._message_ids,
            "message_ids": self._message_ids,
            "start_message_id": rarely(self._message_id, 0.2),
            "initialPosition": rarely(lambda: 1, 0.7),
            "durable": rarely(lambda: 0, 0.2),
            "epoch": rarely(self._wire.number, 0.2),
            "consumer_epoch": rarely(self._wire.number),
            "topic_epoch": rarely(self._wire.number, 0.1),
            "producer_access_mode": rarely(lambda: random.randrange(5), 0.2),
            "producer_name": rarely(lambda: random.choice(("p", "q")), 0.3),
            "user_provided_producer_name": rarely(lambda: 1, 0.3),
            "initial_subscription_name": rarely(lambda: random.choice(SUBSCRIPTIONS)),
            "priority_level": rarely(lambda: random.randrange(3), 0.3),
            "start_message_rollback_duration_sec": rarely(self._wire.number),
            "num_messages": rarely(lambda: random.choice((1, 2, 10, 2**31 - 1)), 0.3),
            "message_publish_time": rarely(self._wire.number, 0.3),
            "force": rarely(lambda: 1, 0.5),
            "namespace": lambda: "public/default",
            "mode": lambda: random.randrange(3),
            "topics_pattern": rarely(lambda: random.choice((".*", "f[01]", "persistent://.*")), 0.5),
        }

    def _one_of(self, known: list[int]) -> int:
        random = self._random
        if known and (self._sense > 0.95 or random.random() < 0.9):
            return random.choice(known)
        return random.choice((0, 1, 2**63, 2**64 - 1))

    def _request(self) -> int:
        self._requests += 1
        return self._requests

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def _message_id(self) -> bytes:
        random = self._random
        if self.positions and random.random() < 0.8:
            ledger_id, entry_id = random.choice(self.positions[-40:])
            entry_id += random.choice((0, 0, 0, 0, 1, -1, 5))
        else:
            ledger_id, entry_id = self._wire.number(), self._wire.number()
        parts = [tagged(1, 0, varint(ledger_id)), tagged(2, 0, varint(entry_id))]
        if random.random() < 0.1:
            parts.append(tagged(3, 0, varint(random.choice((-1, 0, 7)))))
        if random.random() < 0.25:
            words = [random.choice((0, 1, 6, 2**64 - 1, 2**63, random.getrandbits(64)))]
            words *= random.choice((1, 1, 1, 2, 16))
            parts += [tagged(5, 0, varint(word)) for word in words]
            if random.random() < 0.7:
                parts.append(tagged(6, 0, varint(random.choice((1, 2, 3, 10, 64, 1000, 2**20, 2**31 - 1)))))
        return b"".join(parts)

    def _message_ids(self) -> list[bytes]:
        return [self._message_id() for _ in range(self._random.choice((1, 1, 1, 2, 3, 8)))]

    # What it says

    def connect(self) -> bytes:
        body = self._wire.message(KINDS[BaseCommand.CONNECT].message_type, self._choices)
        return frame(command_bytes(BaseCommand.CONNECT, body))

    def say(self) -> tuple[bytes, int]:
        """Some frames and how many they are."""
        random = self._random
        if random.random() < 0.04 * (1.2 - self._sense):
            return mutated(random, random.choice(_recorded)), 1
        if random.random() < self._sense:
            kind = self._kinds[random.choices(range(len(self._kinds)), self._weights)[0]]
        else:
            kind = random.choice(list(KINDS))
        data, count = self._command(self._possible(kind))
        if random.random() < 0.15 * (1 - self._sense):
            data = mutated(random, data)
        return data, count

    def _possible(self, kind: int) -> int:
        """Without a producer or consumer mostly nothing is tried that needs one."""
        if self._random.random() > self._sense:
            return kind
        if kind == BaseCommand.SEND and not self.producers:
            return BaseCommand.PING if self._asked else BaseCommand.PRODUCER
        if kind in _OF_CONSUMERS and not self.consumers:
            return BaseCommand.PONG if self._asked else BaseCommand.SUBSCRIBE
        return kind

    def give_permits(self) -> bytes:
        """For the consumer that was opened last."""
        consumer_id = self.consumers[-1]
        permits = self._random.choice((1, 3, 100, 1000, 2**32 - 1))
        body = tagged(1, 0, varint(consumer_id)) + tagged(2, 0, varint(permits))
        return frame(command_bytes(BaseCommand.FLOW, body))

    def _command(self, kind: int) -> tuple[bytes, int]:
        random = self._random
        if kind == BaseCommand.SEND:
            return self._sends()
        if kind == BaseCommand.PRODUCER:
            return self._opening(kind, "producer_id", self.producers), 1
        if kind == BaseCommand.SUBSCRIBE:
            return self._opening(kind, "consumer_id", self.consumers), 1
        if kind == BaseCommand.ACK and random.random() < 0.3:
            return self._acks()
        choices = self._choices
        if kind == BaseCommand.SEEK and random.random() < 0.7:
            choices = choices | {"message_id": self._message_id}
        body = self._wire.message(KINDS[kind].message_type, choices)
        if random.random() > self._sense:
            return frame(self._torn_apart(kind, body)), 1
        return frame(command_bytes(kind, body)), 1

    def _torn_apart(self, kind: int, body: bytes) -> bytes:
        """Two types, another message than the type says, or none."""
        other = self._random.choice(list(KINDS))
        types = [
            tagged(1, 0, varint(each))
            for each in self._random.choice(((kind, other), (other, kind), (other,)))
        ]
        return b"".join(types) + self._random.choice((tagged(kind, 2, body), b"", tagged(other, 2, body)))

    def _opening(self, kind: int, field: str, known: list[int]) -> bytes:
        number = self._random.choice((0, 1, 2, 3, 4, 2**63, 2**64 - 1))
        request_id = self._request()
        self._asked[request_id] = (known, number)
        choices = self._choices | {field: lambda: number, "request_id": lambda: request_id}
        return frame(command_bytes(kind, self._wire.message(KINDS[kind].message_type, choices)))

    def _sends(self) -> tuple[bytes, int]:
        """A run for one producer, as batches of clients have it."""
        random = self._random
        producer_id = self._one_of(self.producers)
        choices = self._choices | {"producer_id": lambda: producer_id, "message_id": lambda: None}
        count = random.choice((1, 1, 3, 10))
        descriptor = KINDS[BaseCommand.SEND].message_type
        frames = [
            frame(
                command_bytes(BaseCommand.SEND, self._wire.message(descriptor, choices)),
                entry(random, self._sequence),
            )
            for _ in range(count)
        ]
        return b"".join(frames), count

    def _acks(self) -> tuple[bytes, int]:
        """A run of plain ones by one consumer."""
        consumer_id = self._one_of(self.consumers)
        start = self.positions[-1:] or [(3, 0)]
        ledger_id, entry_id = start[0]
        frames = []
        for step in range(self._random.choice((2, 5, 10))):
            where = tagged(1, 0, varint(ledger_id)) + tagged(2, 0, varint(max(0, entry_id - step)))
            body = tagged(1, 0, varint(consumer_id)) + b"\x10\x00" + tagged(3, 2, where)
            frames.append(frame(command_bytes(BaseCommand.ACK, body)))
        return b"".join(frames), len(frames)
