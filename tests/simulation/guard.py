"""A guard before the broker: clients prove who they are for a while, and are banned now and then."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from magnetar.errors import AuthenticationFailure
from magnetar.io.interfaces import Io
from magnetar.io.waiting import sleep
from magnetar.security.authentication import Claim, Principal
from magnetar.security.authorization import Authorizer
from magnetar.security.rules import Grants, PulsarRules
from simulation.trace import Violation

if TYPE_CHECKING:
    from simulation.client import Client
    from simulation.world import World

METHOD = "word"
_CORE = "core"
"""The role of those who prove nothing: Magnetar's own clients here."""
_HEARD_SECONDS = 2.0
"""After so long nothing of a role is left that was banned."""
_SLOW_SECONDS = 10.0
"""What a broker may take in addition to read permissions, while each job of its disk takes a second."""


class Guard:
    """Of all lives of the broker. Whoever is not banned may do everything."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._lifetime = random.choice((2.0, 10.0, 100.0))
        """Seconds, at most, that a proof lasts."""
        self._slow = random.random() < 0.3
        self.roles: set[str] = {_CORE}
        self.banned: set[str] = set()

    def be_patient(self) -> None:
        """From now on proofs last.

        Who loses its connection all the time sends the same again all the time, and may never hear of it when
        disks are slow.
        """
        self._lifetime = 100.0

    def authenticator(self, io: Io) -> Word:
        return Word(self, io)

    def authorizer(self, grants: Grants) -> Authorizer:
        return PulsarRules(grants, lambda: frozenset(self.roles - self.banned))

    async def prove(self, io: Io, claim: Claim) -> Principal:
        offered = claim.credentials[0]
        if self._slow:
            await sleep(io.loop, self._random.random() * 0.5)
        if offered.method != METHOD:
            return Principal(_CORE, METHOD)
        role = offered.data.decode()
        if self._random.random() < 0.02:
            raise AuthenticationFailure("not today")
        self.roles.add(role)
        expires = io.clock.wall_ms() / 1000 + self._random.random() * self._lifetime
        return Principal(role, METHOD, None, expires)

    async def bans(self, world: World, clients: list[Client]) -> None:
        """Bans a client for a while, a few times."""
        for _ in range(self._random.randrange(4)):
            await world.sleep(self._random.random() * 3)
            if world.quiet:
                return
            role = self._random.choice(clients).name
            world.trace.note("ban:", role)
            self.banned.add(role)
            life = world.broker.lives
            self._tell(world)
            seconds = self._random.random() * 2 * _HEARD_SECONDS
            await world.sleep(seconds)
            if seconds > _HEARD_SECONDS and world.writes_late:
                await world.sleep(_SLOW_SECONDS)
            if seconds > _HEARD_SECONDS and life == world.broker.lives:
                self._check(world, role)
            self.banned.discard(role)
            world.trace.note("no ban any more:", role)

    @staticmethod
    def _tell(world: World) -> None:
        simulation, service = world.broker.simulation, world.broker.service
        if simulation is not None and service is not None:
            # In the loop of its process.
            simulation.loop.call_soon(service.revocation.roles_changed)

    @staticmethod
    def _check(world: World, role: str) -> None:
        """Nothing is left of a role that has been banned for long enough, by a broker that could know."""
        service = world.broker.service
        if service is None or world.log.metadata_were_away:
            return
        for connection in service.connections.all:
            session = connection.session
            if session.principal.role == role and (session.producers or session.consumers):
                raise Violation(f"{role} is banned, and still has {session.producers or session.consumers}")


class Word:
    """An :class:`magnetar.security.authentication.Authenticator` that takes a client's word for its role."""

    asks = True
    authentication_counts = ()

    def __init__(self, guard: Guard, io: Io) -> None:
        self._guard = guard
        self._io = io

    async def authenticate(self, claim: Claim) -> Principal:
        return await self._guard.prove(self._io, claim)

    def listen(self, changed: Callable[[frozenset[str] | None], None]) -> None:
        """It never changes its mind."""

    async def close(self) -> None:
        """It holds nothing."""
