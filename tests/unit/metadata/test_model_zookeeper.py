"""The model of ZooKeeper says what Apache's did when it was asked the same, packet by packet.

``data/zookeeper_conversation.tsv`` is what ``tools/record_zookeeper.py`` has written. Numbers and passwords
of sessions are compared by who got them; of times only whether a node was changed after it was made; names
of children, and events of one transaction, whatever their order. All else, transactions' numbers too, is
compared byte by byte.
"""

from __future__ import annotations

import struct
from itertools import groupby
from pathlib import Path

from model_zookeeper import ModelZooKeeper
from recorded_conversation import StreamClient, rows
from simulated_io import simulated_io

from magnetar.metadata.zookeeper.messages import JuteReader, Operation, greeting

_LINES = rows(Path(__file__).parent / "data" / "zookeeper_conversation.tsv")
_EVENT = 12
"""Of a packet, what all events of a transaction begin with."""
_HEADER, _STAT, _TIMES = 16, 68, slice(16, 32)
_STEP, _STEP_FAILED = 9, -1
"""Of a step's header: how long it is, and what it begins with when an error is behind it."""
_WITH_STAT = (Operation.CREATE2, Operation.EXISTS, Operation.GET_DATA, Operation.SET_DATA)


class _Client(StreamClient):
    def packets(self) -> list[bytes]:
        """What has come since this was asked for the last time."""
        found = []
        while self.received:
            (length,) = struct.unpack_from(">i", self.received)
            found.append(self.received[4 : 4 + length])
            self.received = self.received[4 + length :]
        return found


class _Replay:
    """The same conversation with the model."""

    def __init__(self) -> None:
        self._simulation = simulated_io(1)
        self._loop = self._simulation.loop
        self._loop.run_until(self._simulation.host.listen("", 2181, ModelZooKeeper(self._loop).factory))
        self._clients: dict[str, _Client] = {}
        self._fresh: set[str] = set()
        """Connections that have not been greeted."""
        self._ended: set[str] = set()
        self._sessions: dict[bytes, bytes] = {}
        """Numbers and passwords: those that were recorded, as the model gave them."""
        self._asked: dict[str, Operation] = {}
        self._told: dict[str, list[bytes]] = {}
        self.answers = 0

    def step(self, line: list[str]) -> None:
        """What somebody did."""
        kind, rest = line[0], line[1:]
        if kind == "wait":
            self._loop.run_for(int(rest[0]) / 1000)
            return
        name = rest[0]
        if kind == "connect":
            client = self._clients[name] = _Client()
            self._fresh.add(name)
            self._loop.run_until(self._simulation.host.connect("localhost", 2181, lambda: client))
        elif kind == "cut":
            self._clients.pop(name).transport.close()
        else:
            packet = self._as_here(bytes.fromhex(rest[2]))
            if name not in self._fresh:
                self._asked[name] = Operation(struct.unpack_from(">i", packet, 4)[0])
            self._clients[name].transport.write(struct.pack(">i", len(packet)) + packet)
        self._loop.run_for(0.1)

    def compare(self, expected: dict[str, list[bytes]], ended: set[str]) -> list[str]:
        """In what that differs which came of the last step."""
        wrong = []
        for name, client in self._clients.items():
            here, there = client.packets(), expected.get(name, [])
            if name in self._fresh and here and there:
                self._learn(here[0], there[0])
            self.answers += len(there)
            shown = self._all_shown(name, [self._as_there(packet) for packet in here])
            wanted = self._all_shown(name, there)
            self._fresh -= {name} if here else set()
            if shown != wanted:
                wrong.append(f"{name} is told {shown}, and was told {wanted}")
            if client.closed != (name in ended or name in self._ended):
                wrong.append(f"{name} has ended: {client.closed}")
        self._ended |= ended
        return wrong

    def _learn(self, here: bytes, there: bytes) -> None:
        mine, theirs = greeting(here), greeting(there)
        if mine.session_id and theirs.session_id:
            self._sessions[struct.pack(">q", theirs.session_id)] = struct.pack(">q", mine.session_id)
            self._sessions[theirs.password] = mine.password

    def _as_here(self, packet: bytes) -> bytes:
        for theirs, mine in self._sessions.items():
            packet = packet.replace(theirs, mine)
        return packet

    def _as_there(self, packet: bytes) -> bytes:
        for theirs, mine in reversed(self._sessions.items()):
            packet = packet.replace(mine, theirs)
        return packet

    def _all_shown(self, name: str, packets: list[bytes]) -> list[object]:
        """Events of one transaction, as of the nodes of a session that ends, come in any order."""
        packets = [
            packet
            for _, of_one in groupby(packets, lambda packet: packet[:_EVENT])
            for packet in sorted(of_one)
        ]
        return [self._shown(name, packet) for packet in packets]

    def _shown(self, name: str, packet: bytes) -> object:
        """What is compared of a packet."""
        if name in self._fresh:
            return packet.hex()
        xid, _zxid, error = struct.unpack_from(">iqi", packet)
        operation = self._asked.get(name)
        if xid == -1 or error:
            return packet.hex()
        if operation is Operation.GET_CHILDREN:
            return packet[:_HEADER].hex(), sorted(JuteReader(packet[_HEADER:]).take_texts())
        if operation is Operation.MULTI:
            return packet[:_HEADER].hex(), _shown_steps(packet)
        if operation not in _WITH_STAT:
            return packet.hex()
        return packet[:-_STAT].hex(), _shown_stat(packet[-_STAT:])


def _shown_stat(stat: bytes) -> object:
    made, changed = struct.unpack(">qq", stat[_TIMES])
    return stat[: _TIMES.start].hex(), changed > made, stat[_TIMES.stop :].hex()


def _shown_steps(packet: bytes) -> list[object]:
    """What a MULTI was answered, step by step."""
    shown: list[object] = []
    at, end = _HEADER, False
    while not end:
        kind, end, error = struct.unpack_from(">i?i", packet, at)
        shown.append((kind, end, error))
        at += _STEP
        if kind == Operation.CREATE2:
            (length,) = struct.unpack_from(">i", packet, at)
            shown.append(packet[at : at + 4 + length].hex())
            at += 4 + length
        if kind in _WITH_STAT:
            shown.append(_shown_stat(packet[at : at + _STAT]))
            at += _STAT
        elif kind == _STEP_FAILED and not end:
            shown.append(packet[at : at + 4].hex())
            at += 4
    shown.append(packet[at:].hex())
    return shown


def test_a_recorded_conversation_with_zookeeper() -> None:
    replay = _Replay()
    wrong = []
    at = 0
    while at < len(_LINES):
        line = _LINES[at]
        replay.step(line)
        at += 1
        expected: dict[str, list[bytes]] = {}
        ended = set()
        while at < len(_LINES) and _LINES[at][0] in ("told", "ended"):
            kind, name, *packet = _LINES[at]
            if kind == "told":
                expected.setdefault(name, []).append(bytes.fromhex(packet[0]))
            else:
                ended.add(name)
            at += 1
        wrong += [f"{' '.join(line[:3])}: {each}" for each in replay.compare(expected, ended)]
    assert replay.answers > 90
    assert not wrong, "\n".join(wrong)
