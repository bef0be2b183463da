"""How the parts of a batch are shared out to tasks."""

from __future__ import annotations

from magnetar.spark.ledgers import Range
from magnetar.spark.pipelines.table_batch import shares_of
from magnetar.spark.reading.planning import TaskPart


def test_tasks_get_about_the_same_and_keep_the_order_of_a_topic() -> None:
    parts = [
        TaskPart(topic, (Range(ledger, 0, 0, entries),))
        for topic in ("a", "b")
        for ledger, entries in ((1, 30), (2, 10), (3, 20))
    ]
    shares = shares_of(parts, 2)
    sizes = [sum(each.entries for part in share for each in part.ranges) for share in shares]
    assert sizes == [60, 60]
    for share in shares:
        places = [(part.topic, part.ranges[0].ledger) for part in share]
        assert places == sorted(places)
    assert sorted(map(repr, parts)) == sorted(repr(part) for share in shares for part in share)
    assert len(shares_of(parts, 100)) == len(parts)
    assert shares_of([], 4) == ()
