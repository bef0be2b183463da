"""A disk that is full, has room and is full again while producers are being closed."""

from __future__ import annotations

from typing import Any

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.topics.persistent import Topic
from magnetar.io.waiting import sleep
from magnetar.naming.topic_name import TopicName


def test_who_came_while_there_was_room_is_closed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    lived = Lived(EffectivePolicies())
    gate, closed = lived.broker.upkeep.storage_gate, list[str]()
    topics = [lived.topic(TopicName.parse(f"persistent://public/default/t{number}")) for number in range(2)]
    producer: Any = object()

    def connect(topic: Topic) -> None:
        topic.producers["p"] = producer

        async def close() -> None:
            closed.append(topic.name.local)
            topic.producers.clear()
            await sleep(lived.broker.io.loop, 1)

        monkeypatch.setattr(topic.producers, "close_in_order", close)

    for topic in topics:
        connect(topic)
    gate.shut("The disk is full")
    lived.world.wait(0.5)
    gate.open()
    connect(topics[0])
    gate.shut("The disk is full again")
    lived.world.wait(5)
    assert closed == ["t0", "t1", "t0"]
    gate.shut("The disk is still full")
    lived.world.wait(5)
    assert len(closed) == 3
