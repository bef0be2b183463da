"""A topic is served by one broker at a time, and bundles change hands in order."""

from __future__ import annotations

import json

from model_zookeeper_tree import ModelNode

from magnetar.broker.ownership.bundles import OWNERS, bundle_at
from simulation.brokers.member import Member
from simulation.brokers.world import World
from simulation.trace import Violation

_LATE_SECONDS = 0.5
"""Whoever slept through the end of its session finds that out as soon as its timers run."""


class OneOwner:
    """Of brokers that run and have their session with ZooKeeper."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._steps = 0
        self.served: dict[str, set[str]] = {}
        """By which brokers each topic has been served so far."""
        world.servers.zookeeper.model.deleting = self._deleted

    def __call__(self) -> None:
        self._steps += 1
        if self._steps % 12:
            return
        now: dict[str, str] = {}
        for member in self._world.members:
            service = member.service
            if service is None or member.paused:
                continue
            if not self._has_session(member):
                self._check_that_it_ends(member)
                continue
            for name, topic in service.topics.loaded.items():
                if topic.fenced:
                    # Lost: nothing of it is written, and its clients are told.
                    continue
                other = now.setdefault(name, member.name)
                if other != member.name:
                    raise Violation(f"{name} is served by {other} and by {member.name}")
                self.served.setdefault(name, set()).add(member.name)

    def _deleted(self, path: str, node: ModelNode, session: int) -> None:
        """:raises Violation: a bundle is taken from its owner, or given up while it is served"""
        bundle = bundle_at(path) if path.startswith(OWNERS) else None
        who = next((each for each in self._world.members if each.session == session), None)
        if bundle is None or who is None:
            return
        owner = json.loads(node.value)["nativeUrl"].removeprefix("pulsar://").partition(":")[0]
        if owner != who.name and node.owner in self._world.servers.zookeeper.model.sessions:
            raise Violation(f"{who.name} takes {bundle} from {owner}")
        if owner == who.name and node.owner == session and who.service is not None:
            left = [topic for topic in who.service.topics.loaded.values() if topic.name in bundle]
            if any(not topic.fenced for topic in left):
                raise Violation(f"{who.name} gives {bundle} up and serves {left[0].name}")

    def _has_session(self, member: Member) -> bool:
        return member.session in self._world.servers.zookeeper.model.sessions

    def _check_that_it_ends(self, member: Member) -> None:
        """:raises Violation: it goes on though ZooKeeper has ended its session"""
        world = self._world
        ended = [at for number, at in world.servers.zookeeper.model.expired if number == member.session]
        if not ended:
            return
        since = max(ended[-1], member.resumed_at)
        if world.loop.time() > since + _LATE_SECONDS:
            raise Violation(f"{member.name} serves, and its session ended at {ended[-1]:.3f}")
