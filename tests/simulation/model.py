"""What is known from outside of a topic and its subscriptions, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from simulation.trace import Violation

Position = tuple[int, int]
Key = tuple[str, int]
"""A producer's name and a sequence id."""

_PENDING = 1 << 62
"""The step of a doubt that lasts at least until the pending seeks are over."""


@dataclass
class Sent:
    """An entry that a producer has sent, perhaps more than once."""

    entry: bytes
    messages: int
    first_step: int
    """When it was sent first."""


@dataclass
class Ack:
    """What a client did to consume a position."""

    sent_step: int
    connection: Any
    remaining: int = 0
    """Bits of a batch that are still to be delivered; 0: the whole entry is acknowledged."""
    known_step: int | None = None
    """When it was first known that the broker had seen it."""
    known_at: float = 0.0
    """The virtual time then."""
    firm: bool = False
    """It outlived whatever ended the broker's life since, or nothing did."""


class TopicModel:
    """All that clients were told of one topic.

    :param once: whether the broker deduplicates: each entry is stored at one position
    """

    def __init__(self, name: str, *, once: bool = False) -> None:
        self.name = name
        self.once = once
        self.places: dict[Key, Position] = {}
        """Where entries are known to be stored, if that is one place."""
        self.unplaced: dict[Key, None] = {}
        """What a producer was told to be stored already, and nobody knows where."""
        self.highest: dict[str, int] = {}
        """The highest sequence id of each producer that is known to be stored."""
        self.sent: dict[Key, Sent] = {}
        self.positions: dict[Position, Key] = {}
        """What is known to be stored, and where."""
        self.receipted: dict[Position, Key] = {}
        self.subscriptions: dict[str, SubscriptionModel] = {}
        self.last_told: Position = (-1, -1)
        """The highest position that anybody was told."""
        self.deliveries = 0

    def receipt(self, key: Key, position: Position) -> None:
        """A producer was told that its entry is stored."""
        self._learn(position, key)
        if position in self.receipted:
            raise Violation(f"{self.name}: two receipts for {position}")
        self._told(key, position)

    def stored_already(self, key: Key) -> None:
        """A producer was told that its entry was stored before; where, a consumer will learn."""
        if not self.once:
            raise Violation(f"{self.name}: {key} was taken for a duplicate")
        self._stored(key)
        place = self.places.get(key)
        if place is None:
            self.unplaced[key] = None
        elif place not in self.receipted:
            self._told(key, place)

    def _told(self, key: Key, position: Position) -> None:
        self.receipted[position] = key
        self.last_told = max(self.last_told, position)
        for subscription in self.subscriptions.values():
            subscription.receipted(position, self.sent[key])

    def delivered(self, position: Position, key: Key, entry: bytes) -> Sent:
        """A consumer got an entry."""
        sent = self.sent.get(key)
        if sent is None:
            raise Violation(f"{self.name}: {key} at {position} was never sent")
        if sent.entry != entry:
            raise Violation(f"{self.name}: {key} at {position} has other bytes than were sent")
        self._learn(position, key)
        self.deliveries += 1
        return sent

    def doubt_all(self) -> None:
        """What was acknowledged on any subscription may be taken back."""
        for subscription in self.subscriptions.values():
            subscription.doubt_all()

    def _learn(self, position: Position, key: Key) -> None:
        known = self.positions.setdefault(position, key)
        if known != key:
            raise Violation(f"{self.name}: {position} was {known} and is {key}")
        self._stored(key)
        if not self.once:
            return
        place = self.places.setdefault(key, position)
        if place != position:
            raise Violation(f"{self.name}: {key} is stored twice, at {place} and at {position}")
        if key in self.unplaced:
            del self.unplaced[key]
            self._told(key, position)

    def _stored(self, key: Key) -> None:
        name, number = key
        self.highest[name] = max(self.highest.get(name, -1), number)

    def check_last_sequence_id(self, name: str, told: int, known: int) -> None:
        """A producer that came back was told its last sequence id; ``known`` was stored before it asked."""
        if self.once and told < known:
            raise Violation(f"{self.name}: {name} is told that {told} was its last, and {known} is stored")

    def check_last_message(self, position: Position, told_before: Position) -> None:
        """An answer to a question that was asked when ``told_before`` had been told."""
        # With everything trimmed the entry id is -1.
        behind = position[0] < told_before[0] if position[1] < 0 else position < told_before
        if behind:
            raise Violation(f"{self.name}: the last message is {position}, and {told_before} was told before")
        if position[1] >= 0:
            self.last_told = max(self.last_told, position)

    def check_order(self) -> None:
        """In the order of positions each producer's entries appear first in the order they were sent."""
        highest: dict[str, int] = {}
        for position in sorted(self.positions):
            name, number = self.positions[position]
            before = highest.get(name, -1)
            if position not in self.receipted and self._sent_again(position, (name, number)):
                # What its connection had brought before it may be trimmed, unseen where nobody subscribed:
                # the order that counts is that of the last time it was sent.
                continue
            if number > before + 1 and (missing := self._unstored(name, before + 1, number)) is not None:
                raise Violation(
                    f"{self.name}: {name} {number} at {position} comes before {missing}, which came later"
                )
            highest[name] = max(before, number)

    def _sent_again(self, position: Position, key: Key) -> bool:
        """Whether the same entry is known to be stored further behind."""
        return any(other > position and known == key for other, known in self.positions.items())

    def _unstored(self, name: str, first: int, end: int) -> int | None:
        """A sequence id in [first, end) that is stored somewhere behind."""
        stored = {number for other, number in self.positions.values() if other == name}
        return next((number for number in range(first, end) if number in stored), None)


class SubscriptionModel:
    """One life of a subscription, from its creation to its end."""

    def __init__(self, topic: TopicModel, name: str) -> None:
        self.topic = topic
        self.name = name
        self.exists_since: int | None = None
        """The step at which its creation was answered."""
        self.owed: set[Position] = set()
        """Positions that must be delivered until a client acknowledges them."""
        self.acks: dict[Position, Ack] = {}
        self.delivered: set[Position] = set()
        self.swept: Position = (-1, -1)
        """The highest position that was acknowledged with all before it."""
        self.doubtful: dict[Position, int] = {}
        """Positions that came again, or were skipped, and may be consumed; and since which step."""
        self.unsettled = 0
        """Seeks and the like whose outcome is not known."""
        self.settled_step = -1
        """When the last of them was over."""
        self.life_step = -1
        """When the broker's last life ended."""
        self.lost_acks = 0
        """Acknowledgements that a crash took back."""

    def exists(self, step: int) -> None:
        """It is known to exist."""
        if self.exists_since is None and not self.unsettled:
            self.exists_since = step

    def unsettle(self) -> None:
        """A seek, or the end of the subscription, is on its way: until :meth:`settle` nothing is sure."""
        self.unsettled += 1
        self.doubt_all()

    def settle(self, step: int) -> None:
        self.unsettled -= 1
        self.settled_step = step
        if not self.unsettled:
            pending = [position for position, since in self.doubtful.items() if since == _PENDING]
            self.doubtful.update(dict.fromkeys(pending, step))

    def receipted(self, position: Position, sent: Sent) -> None:
        """An entry is stored; whoever subscribed before it was sent is to get it."""
        if self.exists_since is not None and self.exists_since < sent.first_step and position > self.swept:
            self.owed.add(position)
            if self.unsettled or sent.first_step <= self.settled_step:
                # A seek may have skipped the entry before the producer got the receipt, or may still skip it.
                self.doubtful[position] = _PENDING if self.unsettled else self.settled_step

    def deliver(self, position: Position, connection: Any, remaining: int | None) -> None:
        """:param remaining: bits of a batch that were delivered, None for all messages"""
        self.delivered.add(position)
        # Else it may be from an earlier life, and only now read.
        of_this_life = self.life_step < connection.barrier
        doubt = self.doubtful.get(position)
        if doubt is not None and doubt <= self.life_step and of_this_life:
            # Whatever life might have consumed it is over, and it was not.
            del self.doubtful[position]
        ack = self.acks.get(position)
        if ack is None or (ack.remaining and remaining is not None and not remaining & ~ack.remaining):
            return
        if ack.firm and self._was_seen(ack, connection):
            raise Violation(
                f"{self.topic.name} {self.name}: {position} again, acknowledged at step {ack.sent_step}, "
                f"known at {ack.known_step}, seen {connection.barrier}, {ack.remaining} of {remaining} left"
            )
        del self.acks[position]
        self.lost_acks += 1
        if ack.sent_step > self.life_step or not of_this_life:
            # It may still be on its way, or this was sent before it came.
            self.doubtful[position] = ack.sent_step

    @staticmethod
    def _was_seen(ack: Ack, connection: Any) -> bool:
        """Whether the broker had certainly seen it when it sent what arrives now."""
        if ack.connection is connection and ack.sent_step <= connection.barrier:
            return True
        return ack.known_step is not None and ack.known_step <= connection.barrier

    def acknowledge(self, position: Position, step: int, connection: Any, remaining: int = 0) -> Ack:
        """A client sends an acknowledgement."""
        before = self.acks.get(position)
        if before is not None and not before.remaining:
            return before
        if before is not None:
            remaining &= before.remaining
        ack = self.acks[position] = Ack(step, connection, remaining, firm=not self.unsettled)
        return ack

    def sweep(self, position: Position, step: int, connection: Any) -> list[Ack]:
        """A client acknowledges everything up to a position."""
        self.swept = max(self.swept, position)
        known = sorted(p for p in self.delivered | self.owed if p <= position)
        return [self.acknowledge(each, step, connection) for each in known]

    def known(self, acks: list[Ack], step: int, now: float) -> None:
        """The broker has answered to something that was sent behind these."""
        for ack in acks:
            if ack.known_step is None:
                ack.known_step, ack.known_at = step, now

    def life_ended(self, step: int, at: float, window: float) -> None:
        """The broker's life ended: what it may not have written by then may come again."""
        self.life_step = step
        for ack in self.acks.values():
            if ack.known_step is None or ack.known_at > at - window:
                ack.firm = False

    def doubt_all(self) -> None:
        """What was acknowledged may be taken back."""
        for ack in self.acks.values():
            ack.firm = False

    def may_move(self, target: Position, step: int) -> None:
        """A seek is asked for: what is before its target may be skipped."""
        for position in self.owed:
            if position < target:
                self.doubtful[position] = step

    def moved(self, target: Position, asked: int, *, strict: bool) -> None:
        """A seek to ``target`` has succeeded, asked for at the step ``asked``.

        :param strict: nothing was trimmed, so what is behind must come again
        """
        for position, ack in list(self.acks.items()):
            if ack.sent_step > asked:
                # Sent by others meanwhile: before or behind it, nobody knows.
                self.doubtful[position] = ack.sent_step
            elif position >= target:
                del self.acks[position]
                if strict and position in self.topic.receipted:
                    self.owed.add(position)
                elif not strict:
                    self.owed.discard(position)
        self.owed = {position for position in self.owed if position >= target}
        self.swept = min(self.swept, target)

    def missing(self) -> set[Position]:
        """What must still be delivered."""
        return self.owed - self.acks.keys() - self.doubtful.keys()

    def missing_unplaced(self) -> list[Key]:
        """What must still be delivered of what is stored nobody knows where."""
        since = self.exists_since
        if since is None or self.unsettled:
            return []
        since = max(since, self.settled_step)
        return [key for key in self.topic.unplaced if since < self.topic.sent[key].first_step]


@dataclass
class Model:
    """Everything that is known from outside."""

    once: bool = False
    """Whether the broker deduplicates."""
    topics: dict[str, TopicModel] = field(default_factory=dict)

    def topic(self, name: str) -> TopicModel:
        return self.topics.setdefault(name, TopicModel(name, once=self.once))

    def life_ended(self, step: int, at: float, window: float) -> None:
        """:param window: seconds before the end within which acknowledgements may have got lost"""
        for topic in self.topics.values():
            for subscription in topic.subscriptions.values():
                subscription.life_ended(step, at, window)
