"""What one input of a kept corpus is fed to; :mod:`fuzz_guided` and the tests use the same."""

from __future__ import annotations

import base64
import hmac
import re
from array import array
from collections.abc import Callable
from pathlib import Path

from fuzz_broker import FuzzedBroker, framed
from fuzz_cases import CASE_SECONDS, alarm
from simulated_io import SimulatedDisk

from magnetar.broker.compaction.latest_messages import Entries, LatestMessages
from magnetar.config.properties import PropertyError, parse_properties
from magnetar.errors import AuthenticationFailure
from magnetar.http.engine.message import Request
from magnetar.http.engine.origins import claim_of
from magnetar.protocol.errors import EntryError
from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand
from magnetar.security.key_material import UnusableKey
from magnetar.security.providers.passwords import matches, parse_htpasswd
from magnetar.security.providers.tokens import TokenRules, authenticated_by, claims_of, secret_key

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


class Handshakes:
    """Bytes of one connection to a broker that asks who its client is."""

    def __init__(self) -> None:
        self._fuzzed: FuzzedBroker | None = None
        self._cases = 0

    def __call__(self, data: bytes) -> None:
        if self._fuzzed is None or self._cases >= _CASES_PER_BROKER:
            if self._fuzzed is not None:
                self._fuzzed.close()
            self._fuzzed, self._cases = FuzzedBroker(tight=True, guarded=True), 0
        self._cases += 1
        fuzzed = self._fuzzed
        transport = fuzzed.connect()
        with alarm(CASE_SECONDS):
            transport.feed(data)
            fuzzed.wait(8)
            fuzzed.check_counts()
            transport.hang_up()
            fuzzed.wait(1)
        fuzzed.good.exchange()
        fuzzed.check_quiet()


def entries(data: bytes) -> None:
    """Taken apart, and compacted."""
    messages = LatestMessages(SimulatedDisk(1), retain_keyless=True, memory=1 << 20, max_size=1 << 20)
    found = Entries(data, array("q", (0,)), array("q", (len(data),)), 1)
    messages.number(found)
    messages.settle()
    place = array("q", (0,))
    copied = messages.copy(found, place, place, -1)
    if len(copied.ends) != (messages.kept > 0):
        raise AssertionError(f"{messages.kept} messages stay, and {len(copied.ends)} entries")
    try:
        parse_entry(data)
    except EntryError:
        return


def properties(data: bytes) -> None:
    try:
        parse_properties(data.decode("iso-8859-1"))
    except PropertyError:
        return


_SECRET = b"0123456789abcdef0123456789abcdef"
_KEY = secret_key(_SECRET)
_RULES = TokenRules(audience_claim="aud", audience="here", leeway_seconds=1)
_MOST_COMPARED = 4
_CHEAP_ROUNDS = 5_000


def tokens(data: bytes) -> None:
    """A token proves a role by its signature alone, whatever else it says."""
    try:
        proven = authenticated_by(claims_of(data, _KEY, _RULES.leeway_seconds), _RULES)
    except AuthenticationFailure as error:
        if not str(error).isprintable():
            raise AssertionError(f"what is told has control characters: {error!s:.100}") from error
        return
    signed, _, signature = data.strip().rpartition(b".")
    expected = base64.urlsafe_b64encode(hmac.digest(_SECRET, signed, "sha256")).rstrip(b"=")
    if signature != expected:
        raise AssertionError(f"{proven.role!r} was proven by a signature that is none")


def htpasswd(data: bytes) -> None:
    """A file is refused with the reason, or its users are compared with, and let nobody in by chance."""
    try:
        users = parse_htpasswd(data)
    except UnusableKey:
        return
    for stored in list(users.values())[:_MOST_COMPARED]:
        if _is_cheap(stored) and matches(b"no password at all, surely", stored):
            raise AssertionError("a password that is none was let in")


def _is_cheap(stored: str) -> bool:
    rounds = re.search(r"rounds=([0-9]+)", stored)
    costly = stored.startswith("$2") or (rounds is not None and int(rounds[1]) > _CHEAP_ROUNDS)
    return not costly


def claims(data: bytes) -> None:
    """What a request says of who sends it is read, or nothing is; never an error."""
    lines = data.decode("latin-1").split("\n")
    headers = dict(line.partition(":")[::2] for line in lines)
    query = {"token": lines[0]} if len(lines) > 1 else {}
    for offered in claim_of(Request("GET", "/", query, headers)).credentials:
        if offered.method == "token":
            tokens(offered.data)


TARGETS: dict[str, Callable[[], Callable[[bytes], None]]] = {
    "frames": Frames,
    "handshakes": Handshakes,
    "entries": lambda: entries,
    "properties": lambda: properties,
    "tokens": lambda: tokens,
    "htpasswd": lambda: htpasswd,
    "claims": lambda: claims,
}
