"""Keeping alive: PING to a silent client, an end to a dead one; what the dead held goes to the living."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import raw_client
from process_signals import stop
from raw_client import SECONDS, Client, Refused, command
from raw_connection import RawConnection
from server import Server

from magnetar.errors import ServerErrorCode
from magnetar.protocol.pulsar_api_pb2 import BaseCommand, CommandSubscribe, ProducerAccessMode


@pytest.fixture(scope="module")
def quick(start_server) -> Server:  # type: ignore[no-untyped-def]
    return start_server(keepAliveIntervalSeconds=1, connectionLivenessCheckTimeoutMillis=300)


@pytest.fixture(scope="module")
def patient(start_server) -> Server:  # type: ignore[no-untyped-def]
    """Pings nobody on its own within a test."""
    return start_server(keepAliveIntervalSeconds=3600, connectionLivenessCheckTimeoutMillis=300)


def test_a_silent_client_gets_ping_and_is_closed(quick: Server) -> None:
    silent = Client(quick.port, answers_pings=False)
    silent.take(BaseCommand.PING)
    silent.expect_closed()


def test_a_connection_that_never_connects_is_closed(quick: Server) -> None:
    connection = RawConnection(quick.port)
    while connection.receive() is not None:
        pass


def test_half_a_frame_is_no_sign_of_life_for_long(quick: Server) -> None:
    client = Client(quick.port, answers_pings=False)
    client.send_bytes(b"\x00\x00")
    client.expect_closed()


def test_a_client_that_answers_stays(quick: Server) -> None:
    client = Client(quick.port, answers_pings=False)
    for _ in range(3):
        client.take(BaseCommand.PING)
        client.send(command(BaseCommand.PONG))
    client.barrier()


def test_a_closed_connection_that_reads_nothing_gives_up_what_it_holds(quick: Server, topic: str) -> None:
    """Its unsent messages kept the connection, and with it the exclusive subscription, for ever."""
    good = Client(quick.port)
    producer, _ = good.produce(topic)
    good.subscribe(topic, "keep")
    stuck = Client(quick.port)
    stuck.subscribe(topic, "s", permits=1000)
    good.published(producer, [os.urandom(1 << 20)] * 20)
    stuck.send_bytes(b"\xff" * 8)
    consumer = good.subscribe(topic, "s", permits=1)
    good.message(consumer)


# Dead producers and consumers


def test_the_name_of_a_living_producer_is_busy(patient: Server, topic: str) -> None:
    living = Client(patient.port)
    producer, _ = living.produce(topic, producer_name="p")
    newcomer = Client(patient.port)
    request = newcomer.begin(
        BaseCommand.PRODUCER, topic=topic, producer_id=1, producer_name="p", user_provided_producer_name=True
    )
    living.take(BaseCommand.PING)
    with pytest.raises(Refused) as refused:
        newcomer.take(BaseCommand.PRODUCER_SUCCESS, request_id=request)
    assert refused.value.code == ServerErrorCode.PRODUCER_BUSY
    assert living.published(producer, [b"m"])


def test_the_name_of_a_dead_producer_is_free(patient: Server, topic: str) -> None:
    dead = Client(patient.port, answers_pings=False)
    dead.produce(topic, producer_name="p")
    newcomer = Client(patient.port)
    producer, success = newcomer.produce(topic, producer_name="p")
    assert success.producer_name == "p"
    assert newcomer.published(producer, [b"m"])
    dead.expect_closed()


@pytest.mark.parametrize("mode", [ProducerAccessMode.Exclusive, ProducerAccessMode.WaitForExclusive])
def test_a_dead_exclusive_producer_of_the_same_name_is_replaced(
    patient: Server, topic: str, mode: ProducerAccessMode.ValueType
) -> None:
    """It was asked, found dead, and fenced its own successor all the same."""
    dead = Client(patient.port, answers_pings=False)
    dead.produce(topic, producer_name="p", producer_access_mode=ProducerAccessMode.Exclusive)
    newcomer = Client(patient.port)
    _, success = newcomer.produce(topic, producer_name="p", producer_access_mode=mode)
    assert (success.producer_ready, success.topic_epoch) == (True, 1)


def test_two_who_want_a_dead_name_do_not_both_get_it(patient: Server, topic: str) -> None:
    dead = Client(patient.port, answers_pings=False)
    dead.produce(topic, producer_name="p")
    newcomers = [Client(patient.port) for _ in range(2)]
    asked = [
        c.begin(
            BaseCommand.PRODUCER,
            topic=topic,
            producer_id=1,
            producer_name="p",
            user_provided_producer_name=True,
        )
        for c in newcomers
    ]

    def outcome(client: Client, request: int) -> str:
        try:
            client.take(BaseCommand.PRODUCER_SUCCESS, seconds=1, request_id=request)
        except Refused as refused:
            return f"refused {refused.code}"
        except TimeoutError:
            return "waits"
        # The other one's request asks the broker whether this one lives: it reads on, and answers.
        with pytest.raises(TimeoutError):
            client.take(BaseCommand.CLOSE_PRODUCER, seconds=1)
        return "open"

    with ThreadPoolExecutor(len(newcomers)) as threads:
        outcomes = list(threads.map(outcome, newcomers, asked))
    assert outcomes.count("open") == 1, outcomes
    assert set(outcomes) <= {"open", "waits", f"refused {int(ServerErrorCode.PRODUCER_BUSY)}"}


def test_a_liveness_check_that_was_answered_does_not_end_a_later_one(patient: Server, topic: str) -> None:
    """The timer of the first check went on and found the second one's question without an answer."""
    living = Client(patient.port, answers_pings=False)
    living.produce(topic, producer_name="p")
    newcomer = Client(patient.port)
    fields = {"topic": topic, "producer_name": "p", "user_provided_producer_name": True}
    began = time.monotonic()
    while time.monotonic() - began < 0.7:
        request = newcomer.begin(BaseCommand.PRODUCER, producer_id=1, **fields)
        living.take(BaseCommand.PING)
        time.sleep(0.1)
        living.send(command(BaseCommand.PONG))
        with pytest.raises(Refused):
            newcomer.take(BaseCommand.PRODUCER_SUCCESS, request_id=request)
    living.barrier()


def test_a_stopped_process_loses_its_exclusive_subscription(patient: Server, topic: str) -> None:
    """The connection of a dead consumer was aborted, and its successor was refused all the same."""
    program = (
        "import sys, time; sys.path[:0] = sys.argv[3:]; from raw_client import Client\n"
        "client = Client(int(sys.argv[1])); client.subscribe(sys.argv[2], 's', permits=1)\n"
        "print('subscribed', flush=True); time.sleep(60)"
    )
    here = os.path.dirname(raw_client.__file__)
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(patient.port), topic, here], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "subscribed\n"
        stop(process.pid)
        newcomer = Client(patient.port)
        consumer = newcomer.subscribe(topic, "s", permits=1)
        producer, _ = newcomer.produce(topic)
        newcomer.published(producer, [b"m"])
        assert newcomer.message(consumer)[1] == b"m"
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_a_living_exclusive_consumer_keeps_its_subscription(patient: Server, topic: str) -> None:
    living = Client(patient.port)
    living.subscribe(topic, "s")
    newcomer = Client(patient.port)
    request = newcomer.begin(
        BaseCommand.SUBSCRIBE,
        topic=topic,
        subscription="s",
        subType=CommandSubscribe.Exclusive,
        consumer_id=1,
    )
    living.take(BaseCommand.PING)
    with pytest.raises(Refused) as refused:
        newcomer.take(BaseCommand.SUCCESS, request_id=request)
    assert refused.value.code == ServerErrorCode.CONSUMER_BUSY
    living.barrier()


def test_a_shared_consumer_that_dies_leaves_its_messages(quick: Server, topic: str) -> None:
    dead = Client(quick.port, answers_pings=False)
    consumer = dead.subscribe(topic, "s", CommandSubscribe.Shared, permits=10)
    good = Client(quick.port)
    producer, _ = good.produce(topic)
    good.published(producer, [b"1", b"2"])
    dead.messages(consumer, 2)
    other = good.subscribe(topic, "s", CommandSubscribe.Shared, permits=10)
    end = time.monotonic() + SECONDS
    got: list[bytes] = []
    while len(got) < 2 and time.monotonic() < end:
        got.append(good.message(other)[1])
    assert got == [b"1", b"2"]
