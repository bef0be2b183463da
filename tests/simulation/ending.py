"""A topic that is terminated while its metadata go wrong, and a producer that goes on until then."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from faulty_metadata import Fault

from magnetar.errors import BrokerError, ServerErrorCode
from magnetar.ledger.interface import LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.topic_name import TopicName
from simulation.client import Client
from simulation.connection import Gone, Refused
from simulation.scripted_producer import Position, ScriptedProducer
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.world import World

TOPIC = "persistent://public/default/ending"
_FIRST = 5
"""Entries that are stored before anybody terminates the topic."""
LOST_QUESTIONS = (0, 4, 20)
"""How many questions of what became of a write are not answered."""


class Ending:
    """The one who publishes, and the one who terminates."""

    def __init__(self, client: Client, random: Random) -> None:
        self._client = client
        self._world: World = client.world
        self._random = random
        self._number = 0
        self._lives = 0
        self._last: Position = (-1, -1)
        """The highest position with a receipt."""
        self._end: Position | None = None
        """What the administrator was told."""
        self._asked_of: Any = None
        """The topic that was terminated last, with success or without: an object in the broker."""
        self._told = False
        """The producer knows that the topic has ended."""

    def __str__(self) -> str:
        return f"ending: {self._number} entries stored, ended at {self._end}, told {self._told}"

    @property
    def done(self) -> bool:
        return self._end is not None and self._told

    # Publishing

    async def publish(self) -> None:
        """Until the topic has ended, and then now and then: it stays so."""
        while not (self._told and self._world.quiet):
            try:
                await self._publish()
            except Gone as error:
                self._world.trace.note("ending producer:", error)
            except Refused as error:
                self._world.trace.note("ending producer:", error)
                if error.code == ServerErrorCode.TOPIC_TERMINATED:
                    self._hear_of_its_end()
            await self._world.sleep(self._random.random() * 0.5)

    async def _publish(self) -> None:
        self._lives += 1
        over = self._told
        producer = ScriptedProducer(self._world, await self._client.connection(), "ending")
        await producer.open(TOPIC, epoch=self._lives)
        if over:
            raise Violation(f"{TOPIC}: a producer is let in though it has ended at {self._end}")
        while True:
            position = await producer.send(self._number)
            self._number += 1
            self._last = max(self._last, position or (-1, -1))
            if self._end is not None and position is not None and position > self._end:
                raise Violation(f"{TOPIC}: {position} is stored though it has ended at {self._end}")
            await self._world.sleep(self._random.random() * 0.1)

    def _hear_of_its_end(self) -> None:
        """:raises Violation: the topic has not ended: nobody was told so, and it was not loaded anew since"""
        if self._end is not None:
            self._told = True
            return
        service = self._world.broker.service
        loaded = service.topics.loaded.get(TOPIC) if service is not None else None
        if loaded is None or loaded is not self._asked_of:
            # Its record may say so though the administrator was told otherwise.
            return
        raise Violation(f"{TOPIC}: a producer is told that it has ended, and it could not be terminated")

    # Terminating

    async def terminate(self) -> None:
        """Tries until it works."""
        while self._end is None:
            await self._world.sleep(self._random.random())
            broker = self._world.broker
            service, simulation = broker.service, broker.simulation
            if self._number < _FIRST or service is None or simulation is None:
                continue
            asked = simulation.loop.create_task(self._terminate(service))
            while simulation is broker.simulation and not asked.done():
                await self._world.sleep(0.05)
            # Let the producer find out how it went.
            await self._world.sleep(self._random.random())

    async def _terminate(self, service: Any) -> None:
        try:
            topic = self._asked_of = await service.topics.load(TopicName.parse(TOPIC), create=True)
            if not self._world.quiet and self._random.random() < 0.6:
                self._lose_answers()
            end = await topic.terminate()
        except (BrokerError, LedgerError, ManagedLedgerError, MetadataError) as error:
            self._world.trace.note("not terminated:", error)
            return
        self._world.trace.note("terminated at", end)
        self._end = end
        if self._last > end:
            raise Violation(f"{TOPIC}: ended at {end}, and {self._last} was stored before")

    def _lose_answers(self) -> None:
        """The next write of the metadata is not answered, nor are questions about what became of it.

        With many of them the broker gives up; and that end is to be as if nobody had asked.
        """
        metadata = self._world.broker.metadata
        if metadata is None:
            return
        self._world.log.metadata_were_away = self._world.writes_late = True
        metadata.fail_next("put", self._random.choice(list(Fault)))
        for _ in range(self._random.choice(LOST_QUESTIONS)):
            metadata.fail_next("get", Fault.BEFORE)
