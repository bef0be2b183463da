"""What options say, and which are refused; places and offsets."""

from __future__ import annotations

import json
import pickle
from dataclasses import asdict

import pytest

from magnetar.client.message_id import MessageId
from magnetar.spark.access import without_secrets
from magnetar.spark.errors import InvalidOption, InvalidPlace
from magnetar.spark.ledgers import Layout, Range, ranges_between
from magnetar.spark.options import QueryOptions
from magnetar.spark.pipelines.configuration import Cluster
from magnetar.spark.pipelines.mirror_verify import MirrorVerifyConfig
from magnetar.spark.positions import Offset, Place, TopicOffset, parse_message_id
from magnetar.spark.reading.planning import parts_of, ranges_from_splits, splits_of

BASE = {"service.url": "pulsar://h:1", "admin.url": "http://h:2"}


def test_names_are_found_whatever_their_case() -> None:
    found = QueryOptions.parse(
        {**BASE, "TOPIC": "t", "MaxRowsPerTrigger": "5", "pulsar.reader.receiverQueueSize": "7"}
    )
    assert found.topics == ("persistent://public/default/t",)
    assert found.max_rows_per_trigger == 5
    assert found.reader == {"receiver_queue_size": 7}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"toppic": "t"}, "unknown option 'toppic'"),
        ({"topic": "t", "topics": "a,b"}, "only one of"),
        ({"startingOffsets": "earliest", "startingTime": "1"}, "only one of"),
        ({"startingOffsets": "newest"}, "earliest, latest or JSON"),
        ({"maxRowsPerTrigger": "0"}, "'maxRowsPerTrigger' must be a whole number of 1 or more"),
        ({"failOnDataLoss": "maybe"}, "must be true or false"),
        ({"topic": "non-persistent://a/b/c"}, "whose messages are not stored"),
        ({"topicsPattern": "("}, "is not a regular expression"),
        ({"useTls": "true"}, "service.url"),
        ({"authParams": "token:x"}, "without authPlugin"),
        ({"auth.plugin": "token", "authPluginClassName": "token"}, "cannot be used together"),
        ({"auth.plugin": "a.B"}, "unknown plugin 'a.B'"),
        ({"tls.certificate": "x"}, "must be set together"),
        ({"tls.hostname.verification": "maybe"}, "true or false"),
        ({"topic.schema.class": "a.B"}, "names a Java class"),
        (
            {"pulsar.client.numIoThreads": "2"},
            "is not supported; the supported options with the prefix pulsar.client. are",
        ),
        (
            {"pulsar.producer.maxPendingMessages": "2"},
            "is not supported; the supported options with the prefix pulsar.producer. are",
        ),
        ({"pulsar.client.operationTimeoutMs": "0"}, "cannot be '0'"),
        ({"pulsar.producer.compressionType": "ARJ"}, "cannot be 'ARJ'"),
        ({"mode": "FAILFAST", "quarantine.path": "x"}, "has no effect"),
        ({"admin.url": ""}, "must have the form http"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(more: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        QueryOptions.parse({**BASE, **more})


@pytest.mark.parametrize(
    ("plugin", "params"),
    [
        ("token", "kept"),
        ("oauth2", '{"issuerUrl":"https://i","privateKey":"data:;base64,a2VwdA=="}'),
        ("token", "token:kept\n1"),
        ("basic", '{"password":"kept"'),
    ],
)
def test_secrets_that_spark_would_print_or_that_are_none_are_refused(plugin: str, params: str) -> None:
    with pytest.raises(InvalidOption, match=r"auth\.params") as refusal:
        QueryOptions.parse({**BASE, "auth.plugin": plugin, "auth.params": params})
    assert "kept" not in f"{refusal.value!r}"


@pytest.mark.parametrize("prefix", ["", "pulsar.client."])
def test_who_asks_and_tls(prefix: str) -> None:
    given = {
        f"{prefix}auth.plugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        f"{prefix}authParams": "token:kept",
        f"{prefix}tls.trust.certs": "/t",
        f"{prefix}tls.hostname.verification": "false",
    }
    urls = {"service.url": "pulsar+ssl://h:1", "admin.url": "https://h:2"}
    found = pickle.loads(pickle.dumps(QueryOptions.parse({**urls, **given})))
    assert found.client["authentication"].data() == b"kept"
    assert found.access.tls.files.trust == "/t"
    assert not found.access.tls.verify_host
    assert found.access.tls.verify
    assert "kept" not in repr(found)


def test_what_a_pipeline_is_given_is_told_without_secrets() -> None:
    cluster = Cluster(auth_plugin="token", auth_params="token:kept", tls_hostname_verification=False)
    found = QueryOptions.parse({**cluster.options(), "topic": "t"})
    assert found.client["authentication"].data() == b"kept"
    assert not found.access.tls.verify_host
    given = {
        "cluster": asdict(cluster),
        "replay": {"options": {"pulsar.client.authParams": "kept", "a": "b"}},
    }
    shown = without_secrets(given)
    assert "kept" not in f"{shown} {cluster}"
    assert shown["replay"]["options"]["a"] == "b"
    assert shown["cluster"]["auth_plugin"] == "token"
    assert without_secrets({"cluster": asdict(Cluster())})["cluster"] == asdict(Cluster())


def test_each_side_of_a_mirror_is_shown_its_own_proof_alone() -> None:
    left = Cluster("pulsar+ssl://l", "https://l", "token", "token:left", "/l.pem")
    there = ("pulsar+ssl://r", "https://r", "token", "token:kept", "/r.pem", False)
    config = MirrorVerifyConfig("t", "t", *there)
    right = config.right_cluster(left)
    assert right == Cluster(*there)
    assert MirrorVerifyConfig("t", "t").right_cluster(left) == left
    assert MirrorVerifyConfig("t", "t", "pulsar://r", "http://r").right_cluster(left).auth_params == ""
    assert "kept" not in f"{config} {without_secrets({'mirror_verify': asdict(config)})}"
    with pytest.raises(ValueError, match="right_service_url"):
        MirrorVerifyConfig("t", "t", right_auth_params="token:kept")


def test_message_ids_are_read_in_both_forms() -> None:
    import base64

    assert parse_message_id("3:4") == (3, 4, -1)
    assert parse_message_id("3:4:5") == (3, 4, 5)
    encoded = base64.b64encode(MessageId(1, 3, 4, 5, 9).serialize()).decode()
    assert parse_message_id(encoded) == (3, 4, 5)
    for wrong in ("3", "a:b", "-1:2", "", "AAAA"):
        with pytest.raises(InvalidPlace):
            parse_message_id(wrong)


def test_offsets_survive_json() -> None:
    topic = "persistent://public/default/t"
    offset = Offset({topic: TopicOffset(Place(3, 4, 5), (Place(1, 9),), Place(1, 2))}, "s", 7)
    assert Offset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    assert Offset.from_json({"topics": {"t": "3:4"}}).topics[topic].next == Place(3, 4)
    for wrong in (
        [],
        {},
        {"topics": {"t": {}}},
        {"topics": {"t": {"next": "1:2", "splits": ["3:1", "2:1"]}}},
    ):
        with pytest.raises(InvalidPlace):
            Offset.from_json(wrong)


LAYOUT = Layout(((2, 10), (3, 0), (5, 7), (9, 4)), {})


@pytest.mark.parametrize("start", [Place(2, 0), Place(2, 9, 3), Place(2, 10), Place(5, 3), Place(9, 4)])
@pytest.mark.parametrize("end", [Place(2, 4), Place(5, 0), Place(5, 7), Place(5, 2, 6), Place(9, 4)])
def test_splits_give_the_ranges_again(start: Place, end: Place) -> None:
    ranges = ranges_between(LAYOUT, start, end)
    if ranges:
        last = ranges[-1]
        offset = TopicOffset(Place(last.ledger, last.end, last.end_index), splits_of(ranges))
        assert ranges_from_splits(start, offset) == ranges


def test_parts_hold_everything_once_and_are_no_larger_than_asked() -> None:
    ranges = ranges_between(LAYOUT, Place(2, 1, 2), Place(9, 3, 1))
    for size in range(1, 25):
        parts = parts_of("t", ranges, size)
        assert all(sum(each.entries for each in part.ranges) <= size for part in parts)
        pieces = [each for part in parts for each in part.ranges]
        merged: list[Range] = []
        for piece in pieces:
            if merged and (merged[-1].ledger, merged[-1].end) == (piece.ledger, piece.first):
                before = merged.pop()
                piece = Range(piece.ledger, before.first, before.first_index, piece.end, piece.end_index)
            merged.append(piece)
        assert merged == ranges
