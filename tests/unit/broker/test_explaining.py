"""Why nothing arrives, in words: sentences, figures and commands of what was brought about."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from delaying import HOUR, Delays
from peers import TOPIC, Brokers, Peer, send_frame
from test_dispatch_rates import EXCLUSIVE, KEY_SHARED, SHARED, UNBOUNDED, sent, store, take, topic_of
from test_lost_entries import with_a_lost_ledger
from test_pause_on_ack_state import acknowledge
from test_pause_on_ack_state import brokers as pausing
from test_waiting_reasons import Later, joined, keyed

from magnetar.broker.admin.all import Admin
from magnetar.broker.dispatch.contract import DispatchSettings
from magnetar.broker.dispatch.waiting import KEYS_WAIT, NOBODY_READY, Reason
from magnetar.broker.explaining.subscriptions import _STORED, explain_subscription
from magnetar.broker.explaining.topic import Replicated, explain_topic
from magnetar.broker.explaining.transactions import _described
from magnetar.broker.policies.values import BacklogQuota, DispatchRate, GroupRates, PublishRate
from magnetar.broker.publishing.hindrances import Hindrance
from magnetar.broker.subscriptions.persistent import begin_seek, end_seek
from magnetar.errors import SubscriptionNotFound, TopicNotFound
from magnetar.managed_ledger.cursor_storage import CursorStorage
from magnetar.protocol.pulsar_api_pb2 import BaseCommand


def explained(brokers: Brokers, subscription: str | None = None, topic: str = TOPIC) -> dict[str, Any]:
    return dict(brokers.world.run(Admin(brokers.broker).explaining.explain(topic, subscription)))


def of(brokers: Brokers, name: str = "s") -> dict[str, Any]:
    return dict(explained(brokers)["subscriptions"][name])


def publishing(brokers: Brokers) -> dict[str, Any]:
    return dict(explained(brokers)["producers"])


def test_every_reason_has_its_words() -> None:
    assert set(_STORED) == set(Reason) - {NOBODY_READY, KEYS_WAIT}


def test_every_reason_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "explain.md").read_text("utf-8")
    told = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    reasons = [each.value for each in Reason if each not in (NOBODY_READY, KEYS_WAIT)]
    others = [each.value for kind in (Hindrance, Replicated) for each in kind]
    assert sorted(told) == sorted([*reasons, *others])


def test_who_serves_it_and_since_when_nobody_is_connected() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 3)
    peer.send(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=9)
    brokers.world.wait(5.0)
    whole = explained(brokers, "s")
    assert whole["topic"] == TOPIC
    assert whole["servedBy"] == "pulsar://127.0.0.1:6650"
    found = whole["subscriptions"]["s"]
    assert found["reason"] == "no_consumer"
    assert found["sentence"] == "No consumer is connected; 3 messages wait."
    assert found["seconds"] == pytest.approx(5.0, abs=0.2)
    assert found["figures"] == {"type": "Shared", "consumers": 0, "backlog": 3, "unacknowledged": 0}
    assert found["look"] == f"pulsar-admin topics peek-messages -s s {TOPIC}"
    assert "try" not in found


def test_what_is_not_there() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.subscribed("s", SHARED)
    with pytest.raises(SubscriptionNotFound):
        explained(brokers, "another")
    with pytest.raises(TopicNotFound):
        explained(brokers, topic="persistent://public/default/another")


def test_only_the_subscription_that_is_asked_for() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.subscribed("s", SHARED)
    brokers.subscribed("t", EXCLUSIVE)
    assert list(explained(brokers)["subscriptions"]) == ["s", "t"]
    assert list(explained(brokers, "t")["subscriptions"]) == ["t"]


def test_consumers_that_ask_for_no_more_are_named() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.subscribed("s", SHARED)
    store(brokers, 1)
    found = of(brokers)
    assert found["reason"] == "no_permits"
    assert found["sentence"].startswith("1 message waits, but no consumer asks for more")
    assert [each["name"] for each in found["figures"]["waitingFor"]] == ["c1"]
    for number in range(2, 30):
        joined(brokers, number, SHARED)
    found = of(brokers)
    assert len(found["figures"]["waitingFor"]) == 20
    names = ", ".join(f"c{number} at 127.0.0.1:1" for number in (1, 2, 3))
    assert f"({names} and others)" in found["sentence"]


@pytest.mark.parametrize("whose", ["consumer", "subscription"])
def test_a_limit_of_what_is_outstanding_and_the_command_that_raises_it(whose: str) -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, **{f"max_unacked_per_{whose}": 5}))
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 10)
    take(peer)
    brokers.until(lambda: sent(brokers) == 5)
    found = of(brokers)
    assert (found["reason"], found["figures"]["limit"]) == (f"unacked_{whose}", 5)
    assert found["try"] == f"pulsar-admin topics set-max-unacked-messages-per-{whose} -m 10 {TOPIC}"


def test_no_policy_of_the_topic_is_suggested_where_topics_have_none() -> None:
    policies = replace(UNBOUNDED, max_unacked_per_consumer=5)
    brokers = Brokers(policies=policies, topic_policies=False)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 10)
    take(peer)
    brokers.until(lambda: sent(brokers) == 5)
    found = of(brokers)
    assert found["reason"] == "unacked_consumer"
    assert "try" not in found


def test_the_consumer_that_holds_a_key_is_named() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    first = brokers.subscribed("s", KEY_SHARED)
    take(first)
    for number in range(20):
        store(brokers, 1, keyed(f"k{number}"))
    brokers.until(lambda: sent(brokers) == 20)
    second = joined(brokers, 2, KEY_SHARED)
    take(second, number=2)
    for number in range(20):
        store(brokers, 1, keyed(f"k{number}"))
    brokers.world.wait(0.5)
    found = of(brokers)
    assert found["reason"] == "key_held"
    held = found["figures"]["held"]
    assert {each["consumer"] for each in held} == {"c1"}
    assert all(each["unacknowledged"] == 1 and 1 <= each["hash"] <= 65535 for each in held)
    assert found["figures"]["waiting"] == 40 - sent(brokers)
    acknowledge(first, list(range(20)))
    brokers.until(lambda: sent(brokers) == 40)
    assert of(brokers)["reason"] == "at_end"


@pytest.mark.parametrize("name", ["subscription_dispatch_rate", "dispatch_rate"])
def test_whose_rate_it_is_and_the_command_that_raises_it(name: str) -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, **{name: DispatchRate(5, period_seconds=60)}))
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 20)
    take(peer)
    brokers.world.wait(1.0)
    found = of(brokers)
    assert found["reason"] == "rate_limit"
    assert "it allows 5 messages per 60 s" in found["sentence"]
    words = (
        "topicPolicies set-subscription-dispatch-rate -s s" if name[0] == "s" else "topics set-dispatch-rate"
    )
    assert found["try"] == f"pulsar-admin {words} -md 50 -bd -1 -dt 60 {TOPIC}"


def test_when_the_next_of_what_is_delayed_is_due() -> None:
    brokers = Delays()
    brokers.consumer(SHARED)
    brokers.send(HOUR, 2 * HOUR)
    brokers.run_for(100)
    found = of(brokers)
    assert found["reason"] == "delayed"
    assert found["figures"]["delayed"] == 2
    assert found["figures"]["nextDue"] == pytest.approx(brokers.now + HOUR, abs=1000)


def test_filters_are_named() -> None:
    dispatch = DispatchSettings(filters=(Later(),), filter_again_seconds=10.0)
    brokers = Brokers(policies=UNBOUNDED, dispatch=dispatch)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 2)
    take(peer)
    brokers.world.wait(1.0)
    found = of(brokers)
    assert (
        found["sentence"]
        == "Entry filters (Later) postpone the remaining messages; the broker asks them again every 10 s."
    )
    assert found["figures"]["rescheduled"] == 2


def test_at_the_end_what_is_not_acknowledged_is_told() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", EXCLUSIVE)
    take(peer)
    brokers.world.wait(2.0)
    store(brokers, 4)
    brokers.until(lambda: sent(brokers) == 4)
    found = of(brokers)
    assert (found["reason"], found["figures"]["backlog"]) == ("at_end", 4)
    assert found["sentence"] == "All messages were delivered; 4 of them are not acknowledged."
    acknowledge(peer, [0, 1, 2, 3])
    brokers.world.wait(0.1)
    assert of(brokers)["sentence"] == "All messages were delivered and acknowledged."


def test_a_subscription_that_is_being_moved() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.subscribed("s", SHARED)
    found = topic_of(brokers).subscriptions["s"]
    begin_seek(found)
    assert of(brokers)["reason"] == "moving"
    end_seek(found)
    assert of(brokers)["reason"] == "at_end"


def test_what_a_topic_that_stores_nothing_dropped() -> None:
    name = TOPIC.replace("persistent://", "non-persistent://", 1)
    brokers = Brokers(policies=UNBOUNDED)
    brokers.subscribed("s", SHARED, topic=name)
    publisher = brokers.publisher(name)
    brokers.publish(publisher, 2)
    found = explained(brokers, topic=name)["subscriptions"]["s"]
    assert (found["reason"], found["figures"]["dropped"]) == ("no_permits", 2)
    assert found["sentence"].endswith("Dropped for this subscription so far: 2 messages.")


# Producers' side


def refused(brokers: Brokers, **fields: Any) -> str:
    """Tries to open a producer; what the client is told."""
    peer = Peer(brokers)
    wanted = {"topic": TOPIC, "producer_id": 1, "request_id": 1, **fields}
    peer.send(BaseCommand.PRODUCER, "producer", **wanted)
    brokers.until(lambda: peer.count(BaseCommand.ERROR))
    return str(peer.received(BaseCommand.ERROR)[0].error.message)


def test_nothing_is_in_the_way() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.publisher()
    found = publishing(brokers)
    assert (found["reason"], found["refused"]) == ("nothing", [])
    assert found["sentence"] == "Nothing prevents publishing: 1 producer is connected."


def test_a_terminated_topic() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.publisher()
    brokers.world.run(topic_of(brokers).terminate())
    assert publishing(brokers)["reason"] == "terminated"
    text = refused(brokers)
    found = publishing(brokers)
    assert found["reason"] == "terminated"
    assert found["refused"][0]["message"] == text
    assert found["since"] == found["refused"][0]["first"]


def test_no_room_on_the_disk() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.publisher()
    brokers.broker.upkeep.storage_gate.shut("The disk is full")
    brokers.world.wait(0.5)
    refused(brokers)
    found = publishing(brokers)
    assert found["reason"] == "storage_full"
    assert found["sentence"].startswith("The disk is full. ")
    assert found["refused"][0]["times"] == 2, "one was closed, one refused"
    brokers.broker.upkeep.storage_gate.open()
    assert publishing(brokers)["reason"] == "nothing"


@pytest.mark.parametrize("policy", ["producer_request_hold", "producer_exception"])
def test_a_backlog_quota_and_the_subscription_that_is_behind(policy: str) -> None:
    quota = BacklogQuota(limit_bytes=100, policy=policy)
    brokers = Brokers(policies=replace(UNBOUNDED, storage_quota=quota))
    brokers.subscribed("slow", SHARED)
    store(brokers, 20)
    refused(brokers)
    found = publishing(brokers)
    assert (found["reason"], found["figures"]["slowest"]) == ("backlog_quota", "slow")
    assert "subscription slow is too far behind" in found["sentence"]
    words = shlex.split(found["try"])
    assert words[:3] == ["pulsar-admin", "topics", "set-backlog-quota"]
    assert int(words[4]) > found["figures"]["backlogBytes"]
    assert found["look"] == f"magnetar explain {TOPIC} -s slow"


def test_as_many_producers_as_may_be() -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, max_producers=1))
    brokers.publisher()
    assert publishing(brokers)["reason"] == "nothing", "nobody was refused"
    refused(brokers)
    found = publishing(brokers)
    assert (found["reason"], found["figures"]["limit"]) == ("max_producers", 1)
    assert found["try"] == f"pulsar-admin topics set-max-producers -p 2 {TOPIC}"


def test_a_producer_that_has_the_topic_for_itself() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    owner = Peer(brokers)
    owner.send(
        *(BaseCommand.PRODUCER, "producer"),
        topic=TOPIC,
        producer_id=1,
        request_id=1,
        producer_name="own",
        producer_access_mode=1,
    )
    brokers.until(lambda: owner.count(BaseCommand.PRODUCER_SUCCESS))
    refused(brokers)
    found = publishing(brokers)
    assert (found["reason"], found["figures"]["owner"]) == ("exclusive_producer", "own")


def test_a_name_that_is_taken_is_told_for_a_minute() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    first = Peer(brokers)
    named = {"topic": TOPIC, "producer_id": 1, "request_id": 1, "producer_name": "me"}
    first.send(BaseCommand.PRODUCER, "producer", **named)
    brokers.until(lambda: first.count(BaseCommand.PRODUCER_SUCCESS))
    second = {**named, "producer_id": 2, "request_id": 2}
    first.send(BaseCommand.PRODUCER, "producer", **second)
    brokers.until(lambda: first.count(BaseCommand.ERROR))
    assert publishing(brokers)["reason"] == "name_taken"
    brokers.world.wait(61.0)
    found = publishing(brokers)
    assert found["reason"] == "nothing"
    assert found["refused"][0]["reason"] == "name_taken"


def test_what_has_to_be_encrypted() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.subscribed("s", SHARED)
    topic = topic_of(brokers)
    topic.apply_policies(replace(topic.policies, encryption_required=True))
    refused(brokers)
    found = publishing(brokers)
    assert found["reason"] == "encryption_required"
    assert found["try"] == "pulsar-admin namespaces set-encryption-required --disable public/default"


def test_a_message_that_is_too_large() -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, max_message_size=100))
    peer = brokers.publisher()
    peer.connection.data_received(send_frame(0, bytes(1000)))
    brokers.until(lambda: peer.count(BaseCommand.SEND_ERROR))
    found = publishing(brokers)
    assert found["reason"] == "message_refused"
    assert found["sentence"] == "Messages were refused: Exceed maximum message size"
    assert found["try"] == f"pulsar-admin topics set-max-message-size -m 200 {TOPIC}"


def test_a_publish_rate_while_a_connection_waits_for_it() -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, publish_rate=PublishRate(messages=10)))
    peer = brokers.publisher()
    peer.connection.data_received(b"".join(send_frame(n, b"x") for n in range(100)))
    brokers.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == 100)
    found = publishing(brokers)
    assert (found["reason"], found["figures"]["limitOf"]) == ("publish_rate", "Topic")
    assert found["try"] == f"pulsar-admin topics set-publish-rate -m 100 -b -1 {TOPIC}"
    brokers.world.wait(20.0)
    assert publishing(brokers)["reason"] == "nothing"


def test_a_topic_that_was_lost() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.publisher()
    topic = topic_of(brokers)
    topic.fenced = True
    found = brokers.world.run(explain_topic(brokers.broker, topic, None))["producers"]
    assert found["reason"] == "moving"


def test_partitions_are_explained_one_by_one() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    admin = Admin(brokers.broker)
    brokers.world.run(admin.partitions.create(TOPIC, 2, {}))
    brokers.subscribed("s", SHARED, topic=f"{TOPIC}-partition-1")
    found = explained(brokers)
    assert found["topic"] == TOPIC
    assert list(found["partitions"]) == [f"{TOPIC}-partition-0", f"{TOPIC}-partition-1"]
    assert list(explained(brokers, "s")["partitions"]) == [f"{TOPIC}-partition-1"]
    with pytest.raises(SubscriptionNotFound):
        explained(brokers, "another")


# What lasts too short, or needs too much, to be brought about by a client


def test_what_cannot_be_read_and_what_lets_consumers_go_on_behind_it() -> None:
    found = of(with_a_lost_ledger(SHARED, skip=False))
    assert found["reason"] == "read_failed"
    assert found["figures"]["failures"] > 1
    assert found["try"] == (
        "pulsar-admin brokers update-dynamic-config --config autoSkipNonRecoverableData --value true"
    )


def test_acknowledgements_that_cannot_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CursorStorage, "_keeps_all_holes", False)
    brokers = pausing(pause=True)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 40)
    take(peer, permits=20)
    brokers.until(lambda: sent(brokers) == 20)
    acknowledge(peer, [1, 3, 5, 7, 9, 11])
    take(peer, permits=20)
    brokers.world.wait(1.0)
    found = of(brokers)
    assert (found["reason"], found["figures"]["ranges"]) == ("ack_state", 6)
    words = "pulsar-admin topicPolicies remove-dispatcher-pause-on-ack-state-persistent"
    assert found["try"] == f"{words} {TOPIC}"


def now(brokers: Brokers, name: str = "s") -> str:
    """The reason at this moment, without a turn of the loop in between; its words are put together, too."""
    return explain_subscription(topic_of(brokers).subscriptions[name]).reason


def test_a_read_on_its_way_and_others_that_come_first() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 10)
    ledger = topic_of(brokers).managed_ledger
    ledger.reader.forget(ledger.current_ledger.ledger_id)
    take(peer, permits=5)
    brokers.until(lambda: now(brokers) == "reading", most=5)
    brokers.until(lambda: sent(brokers) == 5)
    brokers.broker.budget.admits(topic_of(brokers).subscriptions["s"])
    brokers.broker.budget.spend(1 << 30)
    take(peer, permits=5)
    assert now(brokers) == "turn"
    brokers.until(lambda: sent(brokers) == 10)


@pytest.mark.parametrize(
    ("rate", "setting"),
    [
        (DispatchRate(messages=5), "dispatchThrottlingRateInMsg"),
        (DispatchRate(size=50), "dispatchThrottlingRateInByte"),
    ],
)
def test_the_broker_s_rate_of_dispatch(rate: DispatchRate, setting: str) -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.broker.topics.shared_limits.dispatch.use(rate)
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 100)
    take(peer)
    brokers.world.wait(0.1)
    found = of(brokers)
    assert (found["reason"], found["figures"]["limitOf"]) == ("rate_limit", "Broker")
    assert found["sentence"].endswith(f" The setting {setting} of the broker's configuration sets this rate.")
    assert "try" not in found


@pytest.mark.parametrize(
    ("rates", "setting"),
    [
        ({"max_publish_messages": 5}, "brokerPublisherThrottlingMaxMessageRate"),
        ({"max_publish_bytes": 50}, "brokerPublisherThrottlingMaxByteRate"),
    ],
)
def test_the_broker_s_rate_of_publishing(rates: dict[str, int], setting: str) -> None:
    brokers = Brokers(policies=UNBOUNDED, **rates)
    peer = brokers.publisher()
    peer.connection.data_received(b"".join(send_frame(n, b"x") for n in range(20)))
    brokers.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == 20)
    found = publishing(brokers)
    assert (found["reason"], found["figures"]["limitOf"]) == ("publish_rate", "Broker")
    assert found["sentence"].endswith(f" The setting {setting} of the broker's configuration sets this rate.")


def test_rates_of_a_resource_group() -> None:
    brokers = Brokers(policies=replace(UNBOUNDED, resource_group="g"))
    rates = GroupRates(publish_messages=5, dispatch_messages=5)
    brokers.broker.topics.shared_limits.groups.define({"g": rates})
    peer = brokers.subscribed("s", SHARED)
    store(brokers, 100)
    take(peer)
    publisher = brokers.publisher()
    publisher.connection.data_received(b"".join(send_frame(n, b"x") for n in range(20)))
    brokers.until(lambda: publisher.count(BaseCommand.SEND_RECEIPT) == 20)
    found = of(brokers)
    assert (found["reason"], found["figures"]["limitOf"]) == ("rate_limit", "ResourceGroup")
    found = publishing(brokers)
    assert (found["reason"], found["figures"]["limitOf"]) == ("publish_rate", "ResourceGroup")


def test_a_backlog_that_is_too_old() -> None:
    quota = BacklogQuota(limit_seconds=10, policy="producer_exception")
    brokers = Brokers(policies=replace(UNBOUNDED, age_quota=quota), precise_age_quota=True)
    brokers.subscribed("slow", SHARED)
    store(brokers, 1)
    refused(brokers)
    found = publishing(brokers)
    assert (found["reason"], found["figures"]["quota"]) == ("backlog_quota", "time")
    words = "pulsar-admin topics set-backlog-quota -lt 20s -t message_age -p producer_exception"
    assert found["try"] == f"{words} {TOPIC}"


def test_more_on_its_way_to_the_disk_than_may_be() -> None:
    brokers = Brokers(policies=UNBOUNDED, max_publish_buffer=1000)
    peer = brokers.publisher()
    peer.connection.data_received(send_frame(0, bytes(5000)))
    found = brokers.world.run(explain_topic(brokers.broker, topic_of(brokers), None))["producers"]
    assert found["reason"] == "in_flight"
    assert found["figures"]["bytesOfBroker"] > 5000
    brokers.until(lambda: peer.count(BaseCommand.SEND_RECEIPT) == 1)
    assert publishing(brokers)["reason"] == "nothing"


def test_what_could_not_be_written() -> None:
    brokers = Brokers(policies=UNBOUNDED)
    brokers.publisher()
    topic_of(brokers).on_failed([], OSError("the disk failed"))
    found = publishing(brokers)
    assert found["reason"] == "not_stored"
    assert found["sentence"].endswith("Cannot store the message: the disk failed")


def test_nobody_listens_where_nothing_is_stored() -> None:
    name = TOPIC.replace("persistent://", "non-persistent://", 1)
    brokers = Brokers(policies=UNBOUNDED)
    peer = brokers.subscribed("s", KEY_SHARED, topic=name)
    assert explained(brokers, topic=name)["subscriptions"]["s"]["reason"] == "at_end"
    peer.send(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=9)
    brokers.world.wait(0.1)
    found = explained(brokers, topic=name)["subscriptions"]["s"]
    assert found["reason"] == "no_consumer"
    assert found["sentence"] == "No consumer is connected: published messages are dropped."


def test_a_transaction_that_cannot_end_names_whom_it_cannot_tell() -> None:
    told = {
        "status": "COMMITTING",
        "openTimestamp": 0,
        "timeoutAt": 60_000,
        "owner": "billing",
        "unreached": {"persistent://public/default/t": "no broker serves it"},
    }
    sentence, figures, attempt = _described((0, 7), told)
    assert sentence == (
        "It has been open since 1970-01-01T00:00:00.000Z, was opened by billing, and times out at "
        "1970-01-01T00:01:00.000Z. It is COMMITTING: its topics and subscriptions are being notified. These "
        "could not be reached yet, and will be notified again: persistent://public/default/t "
        "(no broker serves it)."
    )
    assert (figures["status"], figures["timesOut"], figures["owner"]) == ("COMMITTING", 60_000, "billing")
    assert not attempt, "what was decided cannot be aborted"


def test_a_transaction_may_never_time_out() -> None:
    sentence, _figures, attempt = _described(
        (0, 7), {"status": "OPEN", "openTimestamp": 0, "timeoutAt": 2**62}
    )
    assert sentence.endswith("and never times out.")
    assert attempt == "pulsar-admin transactions abort-transaction -m 0 -l 7"
