"""The health check of a broker: a message through a topic of its own."""

from __future__ import annotations

from typing import Any

import pytest
from lived import Lived

from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.policies.values import AutoTopics, InactiveTopics, PublishRate, Retention
from magnetar.errors import MetadataFailure, NamespaceNotFound, PersistenceFailure, ServiceNotReady
from magnetar.io.waiting import sleep
from magnetar.ledger.interface import LedgerError
from magnetar.metadata.interface import MetadataUnavailable
from magnetar.naming.topic_name import TopicName
from magnetar.server.health import HealthCheck

BROKER_ID = "127.0.0.1:8080"
OLDER = f"persistent://pulsar/standalone/{BROKER_ID}/healthcheck"
NEWER = f"persistent://pulsar/{BROKER_ID}/healthcheck"
HARD = EffectivePolicies(
    retention=Retention(-1, -1),
    auto_topics=AutoTopics(allowed=False),
    deduplication=True,
    max_producers=1,
    publish_rate=PublishRate(messages=1),
    inactive_topics=InactiveTopics(delete=True, seconds=1),
)


class Case:
    def __init__(self, policies: EffectivePolicies = HARD) -> None:
        self.lived = Lived(policies, broker_id=BROKER_ID)
        self.broker = self.lived.broker
        self.run(self.broker.start("", 6650, lambda: pytest.fail("nobody comes")))
        self.health = HealthCheck(self.broker)

    def run(self, work: Any) -> Any:
        return self.lived.world.run(work)

    def topic(self, name: str) -> Any:
        return self.broker.topics.loaded[name]


def test_a_message_goes_through_the_topic_whose_name_is_asked_for() -> None:
    case = Case()
    case.run(case.health.run())
    assert set(case.broker.topics.loaded) == {OLDER}
    case.run(case.health.run(True))
    assert set(case.broker.topics.loaded) == {OLDER, NEWER}
    assert case.topic(OLDER).managed_ledger.ledgers.total_entries() == 1


def test_whatever_policies_say_it_goes_on_and_its_old_data_goes() -> None:
    case = Case()
    for _ in range(100):
        case.run(case.health.run())
    case.lived.world.wait(600)
    # Ledgers have room for ten entries here.
    assert case.topic(OLDER).managed_ledger.ledgers.total_entries() <= 10
    assert not case.topic(OLDER).producers
    case.run(case.health.run())


def test_where_another_broker_checks_its_health_nothing_is_served() -> None:
    case = Case()
    for name in (
        "persistent://pulsar/other:8080/healthcheck",
        "persistent://pulsar/c/other:8080/healthcheck",
    ):
        with pytest.raises(NamespaceNotFound):
            case.run(case.broker.topics.load(TopicName.parse(name), create=True))
    with pytest.raises(NamespaceNotFound):
        case.run(case.broker.topics.load(TopicName.parse("persistent://pulsar/other/t"), create=True))


@pytest.mark.parametrize(
    ("failure", "error"),
    [(LedgerError("no bookie"), PersistenceFailure), (MetadataUnavailable("no store"), MetadataFailure)],
)
def test_what_the_stores_refuse_is_told(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, error: type[Exception]
) -> None:
    case = Case()

    async def refuse(*_: Any, **__: Any) -> Any:
        raise failure

    monkeypatch.setattr(case.lived.world.managed, "open", refuse)
    with pytest.raises(error, match=str(failure)):
        case.run(case.health.run())


def test_it_ends_though_nothing_answers_and_the_next_one_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    opened = case.lived.world.managed.open

    async def stuck(*_: Any, **__: Any) -> Any:
        await sleep(case.broker.io.loop, 90)
        return await opened(*_, **__)

    monkeypatch.setattr(case.lived.world.managed, "open", stuck)
    with pytest.raises(PersistenceFailure, match="58 s"):
        case.run(case.health.run())
    case.lived.world.wait(60)
    monkeypatch.undo()
    case.run(case.health.run())


def test_something_else_than_was_written_is_no_health(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    case.run(case.health.run())
    last = case.topic(OLDER).max_read_position
    before = case.run(case.topic(OLDER).managed_ledger.reader.read(last, last, 1, 1))
    monkeypatch.setattr("magnetar.server.health.read_on", _taking(before))
    with pytest.raises(PersistenceFailure, match="differs from the message that was written"):
        case.run(case.health.run())


def _taking(run: Any) -> Any:
    async def read_on(_topic: Any, after: Any, take: Any) -> Any:
        take(run)
        return after

    return read_on


def test_a_broker_that_stops_is_not_healthy() -> None:
    case = Case()
    case.run(case.broker.stop())
    with pytest.raises(ServiceNotReady):
        case.run(case.health.run())
