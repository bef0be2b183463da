"""What a broker writes in front of entries: stored as Pulsar does, skipped by all who do not ask for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lived import Lived
from peers import TOPIC, Brokers, Peer, subscribe_frame
from test_dispatch_rates import EXCLUSIVE, KEY_SHARED, SHARED, UNBOUNDED, take, topic_of

from magnetar.broker.connections.session import SessionState
from magnetar.broker.policies.effective import EffectivePolicies
from magnetar.broker.publishing.broker_entry_metadata import INDEX, BrokerEntryMetadataSettings
from magnetar.broker.topics.entries import first_published_at
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.topics.within import TopicWriter
from magnetar.protocol.frames import encode_command, split
from magnetar.protocol.hot_codec import command_bounds
from magnetar.protocol.metadata import Entry, build_entry, parse_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, BrokerEntryMetadata, MessageMetadata

BOTH = BrokerEntryMetadataSettings(timestamp=True, index=True)


def brokers(wanted_metadata: BrokerEntryMetadataSettings = BOTH, *, show: bool = False) -> Brokers:
    made = Brokers(policies=UNBOUNDED)
    topic = replace(made.broker.settings.topic, broker_entry_metadata=wanted_metadata)
    made.broker.settings = replace(made.broker.settings, topic=topic, show_broker_entry_metadata=show)
    return made


def stored(world: Brokers) -> list[bytes]:
    """All entries of the topic as they lie in its ledgers."""
    topic = topic_of(world)
    ledgers, last = topic.managed_ledger.ledgers, topic.max_read_position
    run = world.world.run(topic.managed_ledger.reader.read(ledgers.after((-1, -1)), last, 100, 1 << 20))
    return [run.entry(index) for index in range(run.count)]


def marks_of(world: Brokers) -> list[BrokerEntryMetadata | None]:
    return [parse_entry(entry).broker_metadata for entry in stored(world)]


def test_each_entry_has_the_number_of_its_last_message_and_the_time() -> None:
    world = brokers()
    world.publish(world.publisher(), 3)
    wanted_metadata = marks_of(world)
    assert [mark and mark.index for mark in wanted_metadata] == [0, 1, 2]
    now = world.world.simulation.io.clock.wall_ms()
    assert all(mark is not None and now - 10_000 < mark.broker_timestamp <= now for mark in wanted_metadata)
    assert world.broker.limits.publish_buffer.used == 0, "what producers sent was counted, and nothing else"


@pytest.mark.parametrize(
    ("wanted_metadata", "wanted"),
    [
        (BrokerEntryMetadataSettings(index=True), (True, False)),
        (BrokerEntryMetadataSettings(timestamp=True), (False, True)),
    ],
)
def test_only_what_the_settings_ask_for_is_written(
    wanted_metadata: BrokerEntryMetadataSettings, wanted: tuple[bool, bool]
) -> None:
    world = brokers(wanted_metadata)
    world.publish(world.publisher(), 1)
    [mark] = marks_of(world)
    assert mark is not None
    assert (mark.HasField("index"), mark.HasField("broker_timestamp")) == wanted


def test_without_them_entries_are_stored_as_they_come() -> None:
    world = brokers(BrokerEntryMetadataSettings())
    world.publish(world.publisher(), 2)
    assert marks_of(world) == [None, None]


def received(peer: Peer) -> list[Entry]:
    """The entries of the MESSAGE frames that came."""
    data, found = bytes(peer._written), []
    for kind, begin, end in split(data, 1 << 23):
        if kind == BaseCommand.MESSAGE:
            found.append(parse_entry(data[command_bounds(data, begin)[1] : end]))
    return found


def connected(world: Brokers, *, asks: bool) -> Peer:
    """A client that takes what is in front of entries, or does not."""
    peer = Peer(world, connect=False)
    command = BaseCommand(type=BaseCommand.CONNECT)
    command.connect.client_version = "test"
    command.connect.feature_flags.supports_broker_entry_metadata = asks
    peer.connection.data_received(encode_command(command))
    world.until(lambda: peer.connection.session.state is SessionState.OPEN and peer.reading)
    return peer


def subscribed(world: Brokers, kind: int, *, asks: bool) -> Peer:
    peer = connected(world, asks=asks)
    peer.connection.data_received(subscribe_frame(1, "s", kind, TOPIC))
    world.until(lambda: peer.count(BaseCommand.SUCCESS))
    peer.forget()
    take(peer)
    return peer


@pytest.mark.parametrize("kind", [EXCLUSIVE, SHARED, KEY_SHARED])
@pytest.mark.parametrize(("show", "asks"), [(False, True), (True, False), (True, True)])
def test_consumers_get_it_only_where_they_ask_and_the_broker_shows_it(
    kind: int, show: bool, asks: bool
) -> None:
    world = brokers(show=show)
    publisher = world.publisher()
    peer = subscribed(world, kind, asks=asks)
    world.publish(publisher, 5)
    world.world.wait(0.5)
    first = received(peer)
    peer.forget()
    peer.send(BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES, "redeliverUnacknowledgedMessages", consumer_id=1)
    world.world.wait(0.5)
    again = received(peer)
    for entries in (first, again):
        assert [entry.metadata.producer_name for entry in entries] == ["p"] * 5
        assert [entry.broker_metadata is not None for entry in entries] == [show and asks] * 5
    assert topic_of(world).subscriptions["s"].rate_out.messages == 10


def lived(wanted_metadata: BrokerEntryMetadataSettings = BOTH) -> Lived:
    made = Lived(EffectivePolicies())
    made.broker.settings = replace(
        made.broker.settings, topic=replace(made.broker.settings.topic, broker_entry_metadata=wanted_metadata)
    )
    return made


def published(made: Lived, topic: Topic, batch: int = 0, publish_time: int = 5) -> int:
    """Publishes an entry; the number that it was given, -1 without one."""
    metadata = MessageMetadata(producer_name="p", sequence_id=1, publish_time=publish_time)
    if batch:
        metadata.num_messages_in_batch = batch
    writer = TopicWriter(topic, "w")
    position = made.world.run(writer.append(build_entry(metadata, b"x"), 1, max(1, batch)))
    run = made.world.run(topic.managed_ledger.reader.read_one(position))
    mark = parse_entry(run.entry(0)).broker_metadata
    return -1 if mark is None else int(mark.index)


def reloaded(made: Lived, topic: Topic) -> Topic:
    made.world.run(made.broker.topics.unload_topic(topic))
    return made.topic()


def test_numbers_count_messages_and_go_on_when_the_topic_is_loaded_again() -> None:
    made = lived()
    topic = made.topic()
    assert [published(made, topic), published(made, topic, 10), published(made, topic)] == [0, 10, 11]
    topic = reloaded(made, topic)
    assert published(made, topic) == 12
    assert topic.managed_ledger.properties[INDEX] == "11"


def test_numbers_go_on_when_everything_was_trimmed() -> None:
    made = lived()
    topic = made.topic()
    assert published(made, topic, 50) == 49
    for _ in range(3):
        topic = reloaded(made, topic)
        made.world.run(topic.managed_ledger.roll())
        made.world.wait(1.0)
        assert topic.managed_ledger.ledgers.total_size() == 0, "nobody wants what is stored"
    assert published(made, topic) == 50


def test_numbers_of_a_process_that_was_killed_are_not_given_again() -> None:
    made = lived()
    topic = made.topic()
    for _ in range(25):
        last = published(made, topic, 4)
    assert last == 99
    again = Lived(EffectivePolicies(), disk=made.world.crash())
    again.broker.settings = replace(
        again.broker.settings, topic=replace(again.broker.settings.topic, broker_entry_metadata=BOTH)
    )
    assert published(again, again.topic()) == 100


def test_a_topic_may_begin_to_have_numbers_and_cease_to() -> None:
    made = lived(BrokerEntryMetadataSettings())
    topic = made.topic()
    assert published(made, topic) == -1
    settings = made.broker.settings
    made.broker.settings = replace(settings, topic=replace(settings.topic, broker_entry_metadata=BOTH))
    topic = reloaded(made, topic)
    assert published(made, topic) == 0
    made.broker.settings = settings
    topic = reloaded(made, topic)
    assert published(made, topic) == -1


def test_the_broker_s_time_counts_for_seeking() -> None:
    made = lived()
    topic = made.topic()
    made.subscribe(topic)
    published(made, topic, publish_time=5)
    made.world.wait(60)
    since = made.clock.wall_ms()
    published(made, topic, publish_time=7)
    found = made.world.run(first_published_at(topic.managed_ledger, since))
    assert found == topic.max_read_position
