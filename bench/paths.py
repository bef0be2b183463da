"""Code paths for counting instructions, run a given number of times; see :mod:`bench.instructions`.

They are repeatable: the broker runs on a simulated loop and disk, and its client is a transport in memory.
A new path is a function in ``PATHS`` that prepares and returns the work of one turn.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "harness"))

from simulated_io import simulated_io

from bench.codec import ENTRIES, MAX_FRAME, acks, sends
from magnetar.broker.connections.connection import Connection
from magnetar.broker.connections.handlers import handle
from magnetar.config.settings import load
from magnetar.io.interfaces import Buffer
from magnetar.ledger.embedded.group import ENTRIES as ENTRIES_RUN
from magnetar.ledger.embedded.group import build_group, gather
from magnetar.protocol import hot_codec
from magnetar.protocol.frames import encode_command
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.server.addresses import bind_addresses
from magnetar.server.broker_process import BrokerSurroundings
from magnetar.server.standalone import StandaloneBroker

Turn = Callable[[int], object]
"""One turn, with its number; it handles ``ENTRIES`` entries."""

_PAYLOAD = bytes(100)


def read_sends() -> Turn:
    buffer, run = sends(20_000, _PAYLOAD), hot_codec.SendRun(ENTRIES)
    return lambda _: hot_codec.read_sends(buffer, 0, len(buffer), MAX_FRAME, run, True, ENTRIES)


def encode_receipts() -> Turn:
    ids = array("q", range(20_000, 20_000 + ENTRIES))
    return lambda _: hot_codec.encode_receipts(1, 77, 20_000, ids, ids, 0, ENTRIES)


def encode_messages() -> Turn:
    buffer, run = sends(20_000, _PAYLOAD), hot_codec.SendRun(ENTRIES)
    hot_codec.read_sends(buffer, 0, len(buffer), MAX_FRAME, run, True, ENTRIES)
    return lambda _: hot_codec.encode_messages(1, 77, 20_000, buffer, run.starts, run.ends, 0, ENTRIES)


def read_acks() -> Turn:
    buffer, run = acks(20_000), hot_codec.AckRun(ENTRIES)
    return lambda _: hot_codec.read_acks(buffer, 0, len(buffer), MAX_FRAME, run)


def log_group() -> Turn:
    buffer, run = sends(20_000, _PAYLOAD), hot_codec.SendRun(ENTRIES)
    hot_codec.read_sends(buffer, 0, len(buffer), MAX_FRAME, run, True, ENTRIES)

    def turn(number: int) -> object:
        body = list(gather(buffer, run.starts, run.ends, 0, ENTRIES))
        return build_group(1, 4096, number, number, [(ENTRIES_RUN, ENTRIES, 7, 0, -1, body)])

    return turn


class _Transport:
    """A client's end in memory, which counts received bytes."""

    def __init__(self) -> None:
        self.received = 0

    def write(self, data: bytes) -> None:
        self.received += len(data)

    def writelines(self, pieces: Sequence[Buffer]) -> None:
        self.received += sum(map(len, pieces))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


def _broker_path(*, batched_reads: bool) -> Turn:
    """Publish, commit, receipt, dispatch and acknowledgement; all entries in one read, or one in each."""
    simulation = simulated_io(1)
    settings = load(None, (), {}).settings
    broker = StandaloneBroker(
        BrokerSurroundings(
            simulation.io, settings, {}, "localhost", {"http": 8080}, bind_addresses(settings)[:1]
        )
    )
    simulation.loop.run_until(broker.start())
    assert broker._broker is not None
    connection, transport = Connection(broker._broker, handle), _Transport()
    connection.connection_made(transport)
    topic = "persistent://public/default/paths"

    def command(kind: int, field: str, **values: Any) -> None:
        made = BaseCommand(type=kind)  # type: ignore[arg-type]
        for name, value in values.items():
            setattr(getattr(made, field), name, value)
        connection.data_received(encode_command(made))
        simulation.loop.run_for(0.1)

    command(BaseCommand.CONNECT, "connect", client_version="paths", protocol_version=21)
    command(BaseCommand.PRODUCER, "producer", topic=topic, producer_id=1, request_id=1)
    new = {"topic": topic, "subscription": "s", "consumer_id": 1, "request_id": 2, "subType": 0}
    command(BaseCommand.SUBSCRIBE, "subscribe", **new)
    command(BaseCommand.FLOW, "flow", consumer_id=1, messagePermits=2**30)
    ledger = next(iter(connection.session.producers.values())).topic.managed_ledger  # type: ignore[attr-defined]
    frames = sends(20_000, _PAYLOAD)
    size = len(frames) // ENTRIES

    def turn(_: int) -> None:
        before = transport.received
        step = len(frames) if batched_reads else size
        for at in range(0, len(frames), step):
            connection.data_received(frames[at : at + step])
            simulation.loop.run_for(0.01)
        position = ledger.last_confirmed
        answer = BaseCommand(type=BaseCommand.ACK)
        answer.ack.consumer_id, answer.ack.ack_type = 1, 1  # type: ignore[assignment]
        answer.ack.message_id.add(ledgerId=position[0], entryId=position[1])
        connection.data_received(encode_command(answer))
        simulation.loop.run_for(0.01)
        if transport.received - before < len(frames):
            raise RuntimeError("not everything was delivered")

    return turn


def broker() -> Turn:
    return _broker_path(batched_reads=True)


def broker_one_by_one() -> Turn:
    return _broker_path(batched_reads=False)


PATHS: dict[str, Callable[[], Turn]] = {
    "codec: read SEND": read_sends,
    "codec: write SEND_RECEIPT": encode_receipts,
    "codec: write MESSAGE": encode_messages,
    "codec: read ACK": read_acks,
    "log: build a group": log_group,
    "broker: publish to acknowledgement, 1000 in a read": broker,
    "broker: publish to acknowledgement, one by one": broker_one_by_one,
}


def main() -> int:
    turn = PATHS[sys.argv[1]]()
    for number in range(int(sys.argv[2])):
        turn(number)
    return 0


if __name__ == "__main__":
    sys.exit(main())
