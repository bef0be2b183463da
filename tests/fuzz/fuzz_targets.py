"""What one input of a kept corpus is fed to; :mod:`fuzz_guided` and the tests use the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fuzz_broker import FuzzedBroker, framed
from fuzz_cases import CASE_SECONDS, alarm

from magnetar.config.properties import PropertyError, parse_properties
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

CORPUS = Path(__file__).parent / "corpus"
_TOPIC = "persistent://public/default/f0"
_OPENING = [
    BaseCommand(type=BaseCommand.CONNECT, connect={"client_version": "guided"}),
    BaseCommand(type=BaseCommand.PRODUCER, producer={"topic": _TOPIC, "producer_id": 1, "request_id": 1}),
    BaseCommand(
        type=BaseCommand.SUBSCRIBE,
        subscribe={"topic": _TOPIC, "subscription": "s", "subType": 1, "consumer_id": 1, "request_id": 2},
    ),
    BaseCommand(type=BaseCommand.FLOW, flow={"consumer_id": 1, "messagePermits": 100}),
]
_CASES_PER_BROKER = 500


class Frames:
    """Bytes of one connection that has a producer and a consumer."""

    def __init__(self) -> None:
        self._fuzzed: FuzzedBroker | None = None
        self._cases = 0

    def __call__(self, data: bytes) -> None:
        if self._fuzzed is None or self._cases >= _CASES_PER_BROKER:
            if self._fuzzed is not None:
                self._fuzzed.close()
            self._fuzzed, self._cases = FuzzedBroker(tight=True), 0
        self._cases += 1
        fuzzed = self._fuzzed
        transport = fuzzed.connect()
        for command in _OPENING:
            transport.feed(framed(command))
            fuzzed.wait(0.05)
        with alarm(CASE_SECONDS):
            transport.feed(data)
            fuzzed.wait(0.05)
            fuzzed.check_counts()
            transport.hang_up()
            fuzzed.wait(1)
        fuzzed.good.exchange()
        fuzzed.check_quiet()


def entries(data: bytes) -> None:
    try:
        parse_entry(data)
    except EntryError:
        return


def properties(data: bytes) -> None:
    try:
        parse_properties(data.decode("iso-8859-1"))
    except PropertyError:
        return


TARGETS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "frames": Frames,
    "entries": lambda: entries,
    "properties": lambda: properties,
}
