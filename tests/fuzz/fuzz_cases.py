"""Cases: several hostile clients and an operator on one broker, all from one seed."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

from fuzz_broker import Defect, FuzzedBroker, GoodClient, Transport
from fuzz_talk import TOPICS, Talker
from fuzz_wire import pieces

from magnetar.broker.service import BrokerService
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError
from magnetar.protocol.pulsar_api_pb2 import BaseCommand

CASES_PER_BROKER = 40
CASE_SECONDS = 60
"""Of processor time; a case takes milliseconds."""

SENSES = (0.2, 0.9, 0.97, 0.995, 0.999, 1.0, 1.0)
PAUSES = (0.0, 0.0, 0.001, 0.01, 0.01, 0.1, 0.2, 1.1)


@contextmanager
def alarm(seconds: int) -> Iterator[None]:
    """:raises Defect: the block does not end in time: it hangs. A busy machine is no hang"""

    def ring(_number: int, _frame: Any) -> None:
        raise Defect(f"a case that does not end within {seconds} s")

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Client:
    """A hostile client, its transport, and what it learns."""

    def __init__(self, fuzzed: FuzzedBroker, random: Random) -> None:
        self._random = random
        self._fuzzed = fuzzed
        sense = random.choice(SENSES)
        self._talker = Talker(random, sense)
        self._transport: Transport
        self._connect()

    def _connect(self) -> None:
        takes = self._random.random() < 0.8
        self._transport = self._fuzzed.connect(takes=takes)
        self._transport.told = self._hear
        self._talker.start_anew()
        if self._random.random() < 0.97:
            self._transport.feed(self._talker.connect())

    def _hear(self, command: BaseCommand) -> None:
        if self._talker.hear(command):
            # Not from inside the broker's own call.
            self._fuzzed.loop.call_soon(self._transport.feed, self._talker.give_permits())

    def step(self) -> int:
        """Says something; answers how many frames it was."""
        random = self._random
        if self._transport.closed:
            self._connect()
        if random.random() < 0.01:
            self._transport.hang_up()
            return 0
        if random.random() < 0.05:
            self._transport.take_answers()
        parts: list[bytes] = []
        frames = 0
        for _ in range(random.choice((1, 1, 2, 5, 12))):
            data, count = self._talker.say()
            parts.append(data)
            frames += count
        for piece in pieces(random, b"".join(parts)):
            if self._transport.closed:
                # What nobody reads any more was no frame.
                return 1
            self._transport.feed(piece)
        return frames

    def go(self) -> None:
        self._transport.hang_up()


async def operate(broker: BrokerService, random: Random) -> None:
    """What an operator may do to any topic at any time."""
    topic = broker.topics.loaded.get(random.choice(TOPICS))
    if topic is None:
        return
    kind = random.random()
    try:
        if kind < 0.5:
            await broker.topics.unload_topic(topic)
        elif kind < 0.75:
            await broker.topics.delete_topic(topic)
        elif isinstance(topic, Topic):
            await topic.terminate()
    except BrokerError as error:
        logging.getLogger(__name__).debug("refused: %s", error)


def run_case(fuzzed: FuzzedBroker, random: Random) -> int:
    """One case; answers how many frames were fed."""
    clients = [Client(fuzzed, random) for _ in range(random.choice((1, 1, 2, 3)))]
    frames = 0
    for _ in range(random.choice((1, 5, 30, 60))):
        frames += random.choice(clients).step()
        if random.random() < 0.01:
            fuzzed.loop.create_task(operate(fuzzed.broker, random))
        pause = random.choice(PAUSES)
        if pause:
            fuzzed.wait(pause)
            fuzzed.check_counts()
    if random.random() < 0.1:
        fuzzed.wait(random.choice((31.0, 125.0)))
    fuzzed.good.exchange()
    fuzzed.check_counts()
    for client in clients:
        client.go()
    fuzzed.wait(5)
    fuzzed.good.exchange()
    fuzzed.check_counts()
    fuzzed.check_quiet()
    fuzzed.check_log()
    return frames


def run_seed(seed: int) -> int:
    """All cases of one broker; answers how many frames were fed.

    :raises Defect: with the seed and the case; :func:`run_seed` of the same seed does the same again
    """
    random = Random(seed)
    fuzzed = FuzzedBroker(tight=bool(seed % 2))
    frames = 0
    for case in range(CASES_PER_BROKER):
        try:
            with alarm(CASE_SECONDS):
                frames += run_case(fuzzed, random)
        except Exception as error:
            fuzzed.world.simulation.abandon()
            logging.getLogger("magnetar").removeHandler(fuzzed.log)
            raise Defect(f"seed {seed}, case {case}: {error!r}") from error
    fuzzed.close()
    return frames


__all__ = ["CASES_PER_BROKER", "Defect", "GoodClient", "run_seed"]
