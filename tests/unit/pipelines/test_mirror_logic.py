"""What ``mirror-verify`` decides without Spark: its configuration, places and times to live."""

from __future__ import annotations

import pytest
from pyspark.sql import Row

from magnetar.protocol.pulsar_api_pb2 import MessageIdData
from magnetar.spark.codec.hot_ids import sort_keys
from magnetar.spark.pipelines.mirror_sides import is_namespace, shortest
from magnetar.spark.pipelines.mirror_verify import MirrorVerifyConfig, id_of, mark_of, range_of


def place(ledger: int, entry: int, index: int = -1) -> bytes:
    data = MessageIdData(ledgerId=ledger, entryId=entry, batch_index=index).SerializeToString()
    offsets = memoryview(b"".join(each.to_bytes(8, "little") for each in (0, len(data)))).cast("q")
    return bytes(sort_keys(offsets, memoryview(data)))


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("shop/orders", True),
        ("orders", False),
        ("shop/orders/new", False),
        ("persistent://shop/orders/new", False),
        ("persistent://shop/orders", False),
    ],
)
def test_a_namespace_has_two_parts(name: str, is_one: bool) -> None:
    assert is_namespace(name) == is_one


def test_a_topic_is_not_compared_with_a_namespace() -> None:
    with pytest.raises(ValueError, match="both be topics or both be namespaces"):
        MirrorVerifyConfig("shop/orders", "shop/orders/new")


def test_clusters_have_different_names() -> None:
    with pytest.raises(ValueError, match="left_name and right_name are the same: east"):
        MirrorVerifyConfig("a", "b", left_name="east", right_name="east")


@pytest.mark.parametrize(("position", "first"), [("7:4", (7, 5)), ("7:-1", (7, 0)), ("-1:-1", (0, 0))])
def test_messages_behind_a_confirmed_position_are_unconfirmed(position: str, first: tuple[int, int]) -> None:
    ledger, entry = first
    assert place(ledger, entry)[:16] > mark_of(position)
    assert place(ledger + 1, 0, 3)[:16] > mark_of(position)
    if entry:
        assert place(ledger, entry - 1, 9)[:16] <= mark_of(position)
    if ledger:
        assert place(ledger - 1, 1000)[:16] <= mark_of(position)


def test_ranges_are_named_by_message_ids() -> None:
    assert id_of(place(7, 300)) == "7:300"
    assert id_of(place(7, 300, 0)) == "7:300:0"
    assert range_of(Row(first=place(7, 1), last=place(7, 1))) == "7:1"
    assert range_of(Row(first=place(7, 1), last=place(8, 0, 2))) == "7:1 to 8:0:2"


def test_the_shorter_time_to_live_counts() -> None:
    assert shortest({"a": 5, "b": 7}, {"a": 9, "b": 6, "c": 1}) == {"a": 5, "b": 6, "c": 1}
