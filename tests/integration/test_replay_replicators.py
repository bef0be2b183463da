"""Recorded conversations of Apache Pulsar's replicator: its frames, byte for byte, get the same answers here.

Where the recorded broker has a defect the test says so, and what is answered instead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from raw_client import Client
from raw_connection import RawConnection, sub_message
from server import Server

from magnetar.naming.replicators import SOURCE_POSITION
from magnetar.protocol.metadata import parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe, ServerError

Frame = Mapping[str, str]

_FILE = Path(__file__).parent.parent / "unit" / "protocol" / "data" / "replicators.json"
CASES: Mapping[str, Sequence[Frame]] = json.loads(_FILE.read_text())["cases"]
NONE = 2**64 - 1


@pytest.fixture(scope="module")
def server(start_server: Callable[..., Server]) -> Server:
    """A broker of the cluster r-b, with the namespaces of the recording."""
    made = start_server(clusterName="r-b")
    _asked(made, "PUT", "/tenants/geo", {"adminRoles": [], "allowedClusters": ["r-b"]})
    for name in ("n1", "n2", "n3", "n4"):
        _asked(made, "PUT", f"/namespaces/geo/{name}", {"replication_clusters": ["r-b"]})
    return made


def _asked(server: Server, method: str, path: str, body: Any = None) -> None:
    status, answer = server.ask(method, f"/admin/v2{path}", None if body is None else json.dumps(body))
    assert status < 300, (path, status, answer)


def _taken_apart(frame: Frame) -> tuple[BaseCommand, bytes]:
    data = bytes.fromhex(frame["hex"])
    end = 8 + int.from_bytes(data[4:8], "big")
    return BaseCommand.FromString(data[8:end]), data[end:]


class Talk:
    """The replicator's side: sends what was recorded, and holds the answers against the recorded ones."""

    def __init__(self, server: Server) -> None:
        self._connection = RawConnection(server.port)
        self.send(CASES["start"][0])
        connected = self.receive(BaseCommand.CONNECTED)
        recorded = _taken_apart(CASES["start"][1])[0].connected
        assert connected.feature_flags.supports_repl_dedup_by_lid_and_eid
        assert connected.feature_flags == recorded.feature_flags
        assert connected.protocol_version == recorded.protocol_version

    def close(self) -> None:
        self._connection.close()

    def send(self, frame: Frame) -> None:
        self._connection.send_bytes(bytes.fromhex(frame["hex"]))

    def receive(self, kind: int) -> Any:
        return self._connection.expect(kind)

    def play(self, frames: Sequence[Frame], first_entry: int = 0) -> None:
        """:param first_entry: where the first message of these is in our topic"""
        for frame in frames:
            if frame["from"] == "replicator":
                self.send(frame)
                continue
            wanted, _nothing = _taken_apart(frame)
            answer = self.receive(wanted.type)
            expected = sub_message(wanted)[1]
            if wanted.type == BaseCommand.SEND_RECEIPT and expected.message_id.ledgerId != NONE:
                assert answer.message_id.ledgerId != NONE
                assert answer.message_id.entryId == first_entry
                first_entry += 1
                expected.message_id.CopyFrom(answer.message_id)
            _hold(wanted.type, answer, expected)

    def produce(self, topic: str, producer_id: int, name: str = "pulsar.repl.r-a-->r-b") -> Any:
        """As recorded, for another topic, producer id and name."""
        command, _nothing = _taken_apart(CASES["start"][8])
        command.producer.topic, command.producer.producer_id = topic, producer_id
        command.producer.producer_name = name
        self._connection.send(command)
        return self.receive(BaseCommand.PRODUCER_SUCCESS)


def _hold(kind: int, answer: Any, expected: Any) -> None:
    """Errors are told in other words, and the address of the broker is another."""
    if kind == BaseCommand.LOOKUP_RESPONSE:
        assert (answer.response, answer.authoritative) == (expected.response, expected.authoritative)
        assert answer.error == expected.error
    elif kind == BaseCommand.GET_SCHEMA_RESPONSE:
        assert answer.error_code == expected.error_code == ServerError.TopicNotFound
    elif kind == BaseCommand.PARTITIONED_METADATA_RESPONSE:
        assert (answer.response, answer.error) == (expected.response, expected.error)
    elif kind == BaseCommand.ERROR:
        assert (answer.request_id, answer.error) == (expected.request_id, expected.error)
    elif kind == BaseCommand.PRODUCER_SUCCESS:
        for field in ("request_id", "producer_name", "last_sequence_id", "schema_version", "producer_ready"):
            assert getattr(answer, field) == getattr(expected, field), field
    else:
        assert answer == expected


@pytest.fixture
def talk(server: Server) -> Iterator[Talk]:
    made = Talk(server)
    yield made
    made.close()


def test_the_start_of_a_replicator_and_its_first_message(talk: Talk) -> None:
    talk.play(CASES["start"][2:])


def test_a_namespace_that_is_missing(server: Server, talk: Talk) -> None:
    command, _nothing = _taken_apart(CASES["missing namespace"][0])
    command.lookupTopic.topic = "persistent://geo/missing/t"
    talk._connection.send(command)
    answer = talk.receive(BaseCommand.LOOKUP_RESPONSE)
    recorded = _taken_apart(CASES["missing namespace"][1])[0].lookupTopicResponse
    assert (answer.response, answer.error) == (recorded.response, recorded.error)


def test_messages_keep_what_they_carry(server: Server, talk: Talk) -> None:
    topic = "persistent://geo/n1/contents"
    talk.produce(topic, 21)
    talk.play(CASES["contents"])
    sent = [_taken_apart(frame)[1] for frame in CASES["contents"] if frame["command"] == "SEND"]
    client = Client(server.port)
    consumer = client.subscribe(topic, "s", CommandSubscribe.Shared, permits=100)
    received = [client.take_frame(BaseCommand.MESSAGE, consumer_id=consumer)[1] for _ in sent]
    client.close()
    # The delayed one comes when its time has come, which is past.
    assert received == sent
    for entry in received:
        metadata = parse_entry(entry).metadata
        assert metadata.replicated_from == "r-a"
        assert metadata.properties[-1].key == SOURCE_POSITION


def test_schemas_are_translated_and_sent_again_after_an_unload(server: Server, talk: Talk) -> None:
    # It was at the time of the recording.
    _asked(server, "PUT", "/namespaces/geo/n1/schemaCompatibilityStrategy", "ALWAYS_COMPATIBLE")
    talk.produce("persistent://geo/n1/s1", 23)
    talk.play(CASES["schema"])
    _asked(server, "PUT", "/persistent/geo/n1/s1/unload")
    talk.play(CASES["reconnect"])


def test_non_persistent_topics_have_ordinary_receipts(talk: Talk) -> None:
    frames = CASES["non-persistent"]
    talk.play(frames[:2])
    talk.send(frames[2])
    first = talk.receive(BaseCommand.SEND_RECEIPT)
    assert (first.sequence_id, first.highest_sequence_id) == (1, NONE)
    talk.send(frames[3])
    receipt, recorded = talk.receive(BaseCommand.SEND_RECEIPT), _taken_apart(frames[4])[0].send_receipt
    assert (receipt.sequence_id, receipt.highest_sequence_id) == (3, NONE)
    assert recorded.highest_sequence_id == NONE


def test_a_replicator_is_let_in_where_encryption_is_required(server: Server, talk: Talk) -> None:
    """Apache Pulsar refuses it for ever, whatever the messages are."""
    _asked(server, "POST", "/namespaces/geo/n3/encryptionRequired", True)
    talk.play(CASES["encryption"])
    talk.receive(BaseCommand.PRODUCER_SUCCESS)


def test_a_topic_that_is_terminated(server: Server, talk: Talk) -> None:
    talk.produce("persistent://geo/n4/t1", 42)
    _asked(server, "POST", "/persistent/geo/n4/t1/terminate")
    talk.play(CASES["terminated"])


def test_markers(talk: Talk) -> None:
    talk.produce("persistent://geo/n1/rs", 9)
    talk.play(CASES["markers"])


def test_deduplication(server: Server, talk: Talk) -> None:
    """New, then a duplicate with the message id -1:-1, then no source position: refused."""
    topic = "persistent://geo/n2/raw9"
    _asked(server, "POST", "/namespaces/geo/n2/deduplication", True)
    talk.produce(topic, 1, "pulsar.repl.r-x-->r-b")
    # Otherwise nothing keeps the message once the topic has another ledger.
    _asked(server, "PUT", "/persistent/geo/n2/raw9/subscription/keep")
    talk.play(CASES["deduplication"])
    assert _stored(server, topic) == 1
    _asked(server, "PUT", "/persistent/geo/n2/raw9/unload")
    talk.receive(BaseCommand.CLOSE_PRODUCER)
    talk.produce(topic, 1, "pulsar.repl.r-x-->r-b")
    # Apache Pulsar has forgotten it by now, and stores it a second time.
    talk.play(CASES["deduplication"][2:4])
    assert _stored(server, topic) == 1


def test_what_has_no_source_position_is_not_stored(server: Server, talk: Talk) -> None:
    """Apache Pulsar stores it, and refuses it all the same."""
    topic = "persistent://geo/n1/raw10"
    talk.produce(topic, 1, "pulsar.repl.r-x-->r-b")
    talk.play(CASES["no source position"])
    assert _stored(server, topic) == 0


def _stored(server: Server, topic: str) -> int:
    path = topic.replace("://", "/")
    status, answer = server.ask("GET", f"/admin/v2/{path}/internalStats")
    assert status == 200, answer
    return int(json.loads(answer)["numberOfEntries"])
