"""Chunks of one message go to one consumer of a shared subscription, whatever else is asked for meanwhile."""

from __future__ import annotations

from random import Random

from delaying import SHARED, Delays, acknowledge, flow, got
from peers import Peer

from magnetar.broker.dispatch.waiting import Reason
from magnetar.protocol.frames import encode_with_payload
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, MessageMetadata


class Chunks(Delays):
    """Publishes chunks, in any order of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        """Which message an entry is of, by entry id; of ``a0``, ``a1``: a chunk of ``a``."""

    def publish(self, *chunks: str, of: int = 2) -> None:
        """``a0`` is chunk 0 of the message ``a``, ``-`` a message of its own.

        :param of: how many chunks each message has
        """
        self.producer.forget()
        frames = []
        for chunk in chunks:
            number = len(self.sent)
            command = BaseCommand(type=BaseCommand.SEND)
            command.send.producer_id = 1
            command.send.sequence_id = number
            metadata = MessageMetadata(producer_name="p", sequence_id=number, publish_time=self.now)
            if chunk != "-":
                metadata.uuid, metadata.chunk_id = chunk[0], int(chunk[1:])
                metadata.num_chunks_from_msg, metadata.total_chunk_msg_size = of, of
            frames.append(encode_with_payload(command, build_entry(metadata, b"x")))
            self.sent.append(chunk)
        self.producer.connection.data_received(b"".join(frames))
        self.until(lambda: self.producer.count(BaseCommand.SEND_RECEIPT) == len(chunks))

    def told(self, peer: Peer) -> list[str]:
        """What a consumer got, in this order."""
        return [self.sent[entry] for entry in got(peer)]

    def check(self) -> None:
        self.subscription().dispatcher.check()


def test_chunks_follow_their_first_one() -> None:
    brokers = Chunks()
    # Each in its turn gets one message: without chunks they would go to one and the other.
    one, other = (brokers.consumer(SHARED, permits=0, number=number) for number in (1, 2))
    flow(one, 1, 1)
    brokers.publish("a0")
    brokers.until(lambda: brokers.told(one) == ["a0"])
    flow(other, 1, 2)
    brokers.publish("b0")
    brokers.until(lambda: brokers.told(other) == ["b0"])
    flow(one, 100, 1)
    flow(other, 100, 2)
    brokers.publish("b1", "a1", "-", "b2", "a2", "c0", "c1", "c2", of=3)
    brokers.until(lambda: len(got(one)) + len(got(other)) == 10)
    for letter in "abc":
        having = [peer for peer in (one, other) if letter in "".join(brokers.told(peer))]
        assert len(having) == 1
        assert [each for each in brokers.told(having[0]) if each[0] == letter] == [
            f"{letter}{n}" for n in range(3)
        ]
    brokers.check()


def test_a_chunk_waits_for_who_has_the_others_and_nothing_else_does() -> None:
    brokers = Chunks()
    one, other = (brokers.consumer(SHARED, permits=0, number=number) for number in (1, 2))
    flow(one, 1, 1)
    brokers.publish("a0")
    brokers.until(lambda: brokers.told(one) == ["a0"])
    flow(other, 100, 2)
    brokers.publish("a1", "-", "b0", "b1")
    brokers.until(lambda: brokers.told(other) == ["-", "b0", "b1"])
    assert brokers.subscription().dispatcher.why_not() is Reason.NO_PERMITS
    brokers.check()
    flow(one, 1, 1)
    brokers.until(lambda: brokers.told(one) == ["a0", "a1"])
    assert brokers.subscription().dispatcher.why_not() is Reason.AT_END
    acknowledge(brokers, one, 0, 1)
    acknowledge(brokers, other, 2, 3, 4, number=2)
    brokers.until(lambda: brokers.subscription().cursor.mark_delete[1] == 4)
    brokers.check()


def test_all_chunks_go_to_another_one_when_their_consumer_leaves() -> None:
    brokers = Chunks()
    one, other = (brokers.consumer(SHARED, permits=0, number=number) for number in (1, 2))
    flow(one, 2, 1)
    brokers.publish("a0", "a1", of=4)
    brokers.until(lambda: brokers.told(one) == ["a0", "a1"])
    flow(other, 100, 2)
    brokers.publish("a2", "-", "a3", of=4)
    brokers.until(lambda: brokers.told(other) == ["-"])
    one.send(BaseCommand.CLOSE_CONSUMER, "close_consumer", consumer_id=1, request_id=9)
    brokers.until(lambda: brokers.told(other) == ["-", "a0", "a1", "a2", "a3"])
    brokers.check()


def test_chunks_that_are_sent_again_stay_together() -> None:
    brokers = Chunks()
    one, other = (brokers.consumer(SHARED, permits=2, number=number) for number in (1, 2))
    brokers.publish("a0", "a1", "b0", "b1")
    brokers.until(lambda: len(got(one)) + len(got(other)) == 4)
    for peer, number in ((one, 1), (other, 2)):
        peer.forget()
        flow(peer, 1, number)
    for peer, number in ((one, 1), (other, 2)):
        peer.send(
            BaseCommand.REDELIVER_UNACKNOWLEDGED_MESSAGES,
            "redeliverUnacknowledgedMessages",
            consumer_id=number,
        )
    brokers.until(lambda: len(got(one)) + len(got(other)) == 2)
    brokers.check()
    for peer, number in ((one, 1), (other, 2)):
        flow(peer, 100, number)
    brokers.until(lambda: len(got(one)) + len(got(other)) == 4)
    for letter in "ab":
        assert any({f"{letter}0", f"{letter}1"} <= set(brokers.told(peer)) for peer in (one, other))
    brokers.check()


def test_whatever_is_asked_for_each_message_comes_to_one() -> None:
    letters = "abcdefgh"
    for seed in range(20):
        random = Random(seed)
        brokers = Chunks()
        peers = [brokers.consumer(SHARED, permits=0, number=number) for number in (1, 2, 3)]
        left = {letter: [f"{letter}{n}" for n in range(3)] for letter in letters}
        while left:
            letter = random.choice(list(left))
            brokers.publish(left[letter].pop(0), "-", of=3)
            if not left[letter]:
                del left[letter]
            number = random.randrange(3)
            flow(peers[number], random.randrange(1, 4), number + 1)
            brokers.check()
        for number, peer in enumerate(peers, 1):
            flow(peer, 100, number)
        brokers.until(lambda peers=peers: sum(len(got(peer)) for peer in peers) == 6 * 8)
        for letter in letters:
            chunks = [[each for each in brokers.told(peer) if each[0] == letter] for peer in peers]
            assert sorted(chunks) == [[], [], [f"{letter}{n}" for n in range(3)]]
        brokers.check()
