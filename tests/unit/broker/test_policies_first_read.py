"""Policies of topics that are asked for, or changed by others, while their records are being read."""

from __future__ import annotations

from array import array
from typing import Any

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.records import Record
from magnetar.broker.system_topics import topic_policies
from magnetar.broker.system_topics.change_events import encode
from magnetar.broker.topics.persistent import Topic
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import LedgerError
from magnetar.naming.topic_name import TopicName

TOPICS = [TopicName.parse(f"persistent://public/default/t{number}") for number in range(3)]
EVENTS = TopicName.parse("persistent://public/default/__change_events")


def _write(events: Topic, topic: TopicName, producers: int) -> None:
    """Somebody else writes a record."""
    data = encode(
        topic,
        {"maxProducerPerTopic": producers},
        everywhere=False,
        cluster="standalone",
        producer="p",
        sequence_id=0,
        publish_time_ms=1,
        schema_version=bytes(8),
    )
    events.managed_ledger.append(data, array("q", (0,)), array("q", (len(data),)), 1, len(data), None)


def _written(lived: Lived, topic: TopicName, producers: int) -> None:
    _write(lived.topic(EVENTS), topic, producers)
    lived.world.wait(0.5)


def _known(lived: Lived) -> Any:
    found = lived.broker.policies.topics
    assert found is not None
    return found


def _slowed(monkeypatch: pytest.MonkeyPatch, lived: Lived) -> None:
    """Reading records takes a while, as it does where they are not in memory."""
    read_on = topic_policies.read_on

    async def slowly(*given: Any) -> Any:
        await sleep(lived.broker.io.loop, 0.1)
        return await read_on(*given)

    monkeypatch.setattr(topic_policies, "read_on", slowly)


def test_who_asks_while_they_are_read_for_the_first_time_gets_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lived = Lived(EffectivePolicies())
    _written(lived, TOPICS[0], 3)
    _slowed(monkeypatch, lived)
    loop, asked = lived.broker.io.loop, list[Any]()

    async def ask_now_and_then() -> None:
        for _ in range(40):
            asked.append(loop.create_task(_known(lived).of(TOPICS[0])))
            await sleep(loop, 0.01)

    lived.world.run(ask_now_and_then())
    assert [lived.world.run(each).get("maxProducerPerTopic") for each in asked] == [3] * 40


def test_where_they_could_not_be_read_they_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(EffectivePolicies())
    _written(lived, TOPICS[0], 3)
    read_on = topic_policies.read_on

    async def fails(*_given: Any) -> Any:
        raise LedgerError("not now")

    monkeypatch.setattr(topic_policies, "read_on", fails)
    with pytest.raises(LedgerError):
        lived.world.run(_known(lived).of(TOPICS[0]))
    monkeypatch.setattr(topic_policies, "read_on", read_on)
    assert lived.world.run(_known(lived).of(TOPICS[0]))["maxProducerPerTopic"] == 3


def test_what_others_wrote_counts_though_a_change_has_read_it() -> None:
    lived = Lived(EffectivePolicies())
    live = [lived.topic(topic) for topic in TOPICS]

    def work(record: Record) -> None:
        record["maxProducerPerTopic"] = 5

    lived.world.run(_known(lived).change(TOPICS[0], work, everywhere=False))
    events = lived.topic(EVENTS)

    def work_while_others_write(record: Record) -> None:
        work(record)
        _write(events, TOPICS[1], 4)

    lived.world.run(_known(lived).change(TOPICS[2], work_while_others_write, everywhere=False))
    lived.world.wait(1)
    assert live[1].policies.max_producers == 4
