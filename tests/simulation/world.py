"""One seed's world: network, broker, clients, model, and the loop that drives them all."""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any

from simulated_io import Conditions, PowerLost, ProcessStopped, SimulatedNetwork
from simulated_io.loop import SimulatedClock

from simulation.broker import HOST, BrokerProcess, End, LogWatch
from simulation.driven import Driven, logging_to
from simulation.guard import Guard
from simulation.invariants import Invariants
from simulation.limits import BROKER_PORT, Limits
from simulation.model import Model
from simulation.offloading import Tiered
from simulation.trace import Trace, Violation

_WINDOW = 0.5
"""Virtual seconds after the cursor's interval by which a state is on the disk: commits, and a new ledger."""
_SLOW_WINDOW = 60.0
LARGEST_BATCH = 100


class World(Driven):
    """:param random: draws what belongs to the world and to nobody in it"""

    def __init__(
        self,
        random: Random,
        limits: Limits,
        guard: Guard | None = None,
        *,
        tiered: Tiered | None = None,
        printing: bool = False,
    ) -> None:
        """:param guard: asks who clients are; None: nobody does

        :param tiered: where ledgers are offloaded to; None: nowhere
        """
        super().__init__()
        self.tiered = tiered
        self.limits = limits
        self.guard = guard
        self.clock = SimulatedClock(self.loop)
        self.trace = Trace(self.loop.time, printing=printing)
        self.network = SimulatedNetwork(self.loop, random.getrandbits(64), Conditions())
        self.network.watch = lambda number, what, size: self.trace.note("link", number, what, size)
        self.ahead_ms = 0
        """By how much the broker's wall clock was ever ahead, at most: so much earlier is not too early."""
        self.model = Model(once=limits.settings.broker_deduplication_enabled)
        self.quiet = False
        """Faults and mischief are over."""
        self.stay_dead = False
        """Nobody starts the broker again."""
        self.damaged = False
        """A bit of what is stored was flipped."""
        self.writes_late = False
        """The disk was slow or full, or the metadata away, in this life: cursors are written late."""
        self.address = (HOST, BROKER_PORT)
        self.broker = BrokerProcess(
            self.loop,
            self.network,
            limits,
            Random(random.getrandbits(64)),
            self.trace,
            self._life_ended,
            guard,
            tiered=tiered,
        )
        self.invariants = Invariants(self.broker, limits, self.model, LARGEST_BATCH)
        self.loop.timeline.after_step = self.invariants
        self.log = LogWatch()
        self.log.bucket_fails = tiered is not None
        self._failure: BaseException | None = None

    @property
    def service_url(self) -> str:
        host, port = self.address
        return f"pulsar://{host}:{port}"

    def _life_ended(self, end: End) -> None:
        slow, self.writes_late = self.writes_late, False
        usual = _WINDOW + 30 * self.limits.disk_seconds
        window = self.limits.cursor_interval + (_SLOW_WINDOW if slow else usual)
        if end.clean and not self.log.cursors_not_written:
            window = 0.0
        self.model.life_ended(self.steps(), end.at, window)

    # Work of the world

    def drive(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Runs all until ``work`` is done; the broker's deaths are told to it on the way.

        :raises Violation: something happened that must not
        """
        task = self.loop.create_task(work)
        with logging_to(self.log):
            while True:
                try:
                    result = self.loop.run_until(task)
                except PowerLost:
                    self.broker.power_lost()
                except ProcessStopped as error:
                    self.broker.stopped_itself(error)
                else:
                    return result
                self._check_log()

    def _check_log(self) -> None:
        if self.log.unexpected:
            raise Violation(f"the broker met an error that it did not expect: {self.log.unexpected[0]}")
        if self.log.errors and not self.damaged:
            raise Violation(f"the broker logged an error though nothing is damaged: {self.log.errors[0]}")

    def check(self) -> None:
        """At the end, or in between: what the log and all that was told say."""
        self._check_log()
        for topic in self.model.topics.values():
            topic.check_order()

    def close(self) -> None:
        """Ends everything that is left."""
        self.loop.timeline.after_step = None
        self.network.watch = None
        if self.broker.simulation is not None:
            self.broker.simulation.abandon()
        self.loop.abandon()
