"""Rounds: clients publish in three clusters that replicate to each other while faults happen; then each has
the messages of all."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pulsar
from geo_load import PATIENCE, SUBSCRIPTION, Follower, Number, Publisher, number_of
from geo_sites import Sites, WiredServer, know_each_other
from polling import until
from replicated_sites import Site

NAMES = ("east", "west", "north")
_TENANT = "rounds"
_ONCE, _PLAIN = "once", "plain"
_NOWHERE = {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
_ALONE = 20


class Outcome(NamedTuple):
    faults: Sequence[str]
    messages: int
    again: int
    """Messages that are stored twice where nothing is deduplicated."""


class Rounds:
    """The clusters, for any number of rounds."""

    def __init__(self, folder: Path) -> None:
        self._servers = {name: WiredServer(folder / name, name) for name in NAMES}
        self.sites: Sites = {}

    def start(self) -> None:
        with ThreadPoolExecutor(len(NAMES)) as pool:
            list(pool.map(WiredServer.start, self._servers.values()))
        self.sites = {name: Site(name, server) for name, server in self._servers.items()}
        know_each_other(self.sites, _TENANT)

    def live(self, seed: int, faults: int) -> Outcome:
        """One round."""
        return Round(self.sites, seed).live(faults)

    def close(self) -> None:
        for site in self.sites.values():
            site.client.shutdown()
        for server in self._servers.values():
            server.close()


class Round:
    """Topics of its own in a namespace with deduplication and in one without."""

    def __init__(self, sites: Sites, seed: int) -> None:
        self._sites = sites
        self._random = Random(seed)
        self._topics = {kind: f"{_TENANT}/{kind}-{seed}/t" for kind in (_ONCE, _PLAIN)}
        self._partitions = dict.fromkeys(self._topics, 2)
        self._publishers = {name: Publisher(name, site.client) for name, site in sites.items()}
        self._followers: dict[str, Follower] = {}
        self._left_out: dict[str, set[Number]] = {name: set() for name in sites}
        """By the cluster that is not to get them."""
        self._heals: list[Callable[[], None]] = []
        self._told: list[str] = []
        self._made = 0
        """Names that were given to producers and to messages that are published alone."""

    def live(self, faults: int) -> Outcome:
        try:
            self._begin()
            for _ in range(faults):
                self._befall()
            self._heal()
            for publisher in self._publishers.values():
                publisher.stop()
            for kind in self._topics:
                self._converge(kind)
            again = [self._check(kind) for kind in self._topics]
            self._check_followers()
        except BaseException as error:
            told = "\n".join(self._told)
            raise AssertionError(f"{error}\nafter:\n{told}") from error
        finally:
            self._heal()
            for publisher in self._publishers.values():
                publisher.close()
            for follower in self._followers.values():
                follower.stop()
        messages = sum(len(self._published(topic)) for topic in self._topics.values())
        return Outcome(self._told, messages, sum(again))

    def _begin(self) -> None:
        for kind, topic in self._topics.items():
            policies = {
                "replication_clusters": list(self._sites),
                "deduplicationEnabled": kind == _ONCE,
                "retention_policies": {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1},
            }
            for site in self._sites.values():
                site.ask("PUT", f"/namespaces/{_namespace(topic)}", policies)
            first = self._some()
            first.ask("PUT", f"/persistent/{topic}/partitions", self._partitions[kind])
            until(
                lambda kind=kind: self._counts(kind) == {2}, "the topic is made everywhere", seconds=PATIENCE
            )  # type: ignore[misc]
        self._follow()
        for publisher in self._publishers.values():
            for kind, topic in self._topics.items():
                # Clients disagree on chunks that were stored twice: none where nothing is deduplicated.
                for way in ("single", "batched", "keyed", "chunked")[: 4 if kind == _ONCE else 3]:
                    publisher.open(topic, way, "0")
            publisher.start()

    def _follow(self) -> None:
        kinds = (pulsar.ConsumerType.Failover, pulsar.ConsumerType.Shared, pulsar.ConsumerType.KeyShared)
        for name, site in self._sites.items():
            follower = Follower(site.client, self._topics[_PLAIN], self._random.choice(kinds))
            self._followers[name] = follower
            follower.start()

    # Faults

    def _befall(self) -> None:
        time.sleep(self._random.uniform(0.1, 0.5))
        [fault] = self._random.choices(list(_FAULTS), [weight for _, weight in _FAULTS.values()])
        self._told.append(f"{time.strftime('%H:%M:%S')} {fault}: {_FAULTS[fault][0](self)}")
        time.sleep(self._random.uniform(0.1, 0.5))
        if self._random.random() < 0.6:
            self._heal()

    def _heal(self) -> None:
        for heal in self._heals:
            heal()
        if self._heals:
            self._told.append(f"{time.strftime('%H:%M:%S')} healed")
        self._heals = []

    def _some(self) -> Site[WiredServer]:
        return self._sites[self._random.choice(NAMES)]

    def _two(self) -> tuple[Site[WiredServer], Site[WiredServer]]:
        one, other = self._random.sample(NAMES, 2)
        return self._sites[one], self._sites[other]

    def _part(self) -> str:
        """Any partition."""
        kind = self._random.choice(list(self._topics))
        return f"{self._topics[kind]}-partition-{self._random.randrange(self._partitions[kind])}"

    def wire_reset(self) -> str:
        site = self._some()
        site.server.wire.reset()
        return site.name

    def wire_stalled(self) -> str:
        site = self._some()
        site.server.wire.stall()
        self._heals.append(site.server.wire.heal)
        return site.name

    def wire_refused(self) -> str:
        site = self._some()
        site.server.wire.refuse()
        self._heals.append(site.server.wire.heal)
        return site.name

    def record(self) -> str:
        """One cluster has a wrong address of another."""
        site, other = self._two()
        site.ask("POST", f"/clusters/{other.name}", _NOWHERE)
        self._heals.append(lambda: _tell(site, other))
        return f"{site.name} of {other.name}"

    def kill(self) -> str:
        site = self._some()
        site.server.restart(kill=True)
        return site.name

    def stop(self) -> str:
        site = self._some()
        site.server.restart(kill=False)
        return site.name

    def unload(self) -> str:
        site, part = self._some(), self._part()
        path = f"/persistent/{part}" if self._random.random() < 0.5 else f"/namespaces/{_namespace(part)}"
        site.ask("PUT", f"{path}/unload", None, (200, 204, 404))
        return f"{path} in {site.name}"

    def more_partitions(self) -> str:
        site = self._some()
        kind = self._random.choice(list(self._topics))
        count = self._partitions[kind] + 1
        topic = self._topics[kind]
        # Where a partition was added while this cluster could not be reached there are fewer.
        until(
            lambda: _count(site, topic) == count - 1 or bool(self._heals),
            "earlier ones are there",
            seconds=PATIENCE,
        )
        if _count(site, topic) != count - 1:
            return f"none in {site.name}, which waits for earlier ones"
        site.ask("POST", f"/persistent/{topic}/partitions", count)
        self._partitions[kind] = count
        self._made += 1
        self._publishers[site.name].open(topic, "batched", str(self._made))
        return f"{count} of {topic} in {site.name}"

    def reset(self) -> str:
        site, topic = self._some(), self._topics[_PLAIN]
        site.ask("POST", f"/persistent/{topic}/subscription/{SUBSCRIPTION}/resetcursor/0")
        return site.name

    def changed_list(self) -> str:
        """Taken from the list of a cluster, another one does not get what is published there meanwhile."""
        self._heal()
        site, other = self._two()
        kind = self._random.choice(list(self._topics))
        topic = self._topics[kind]
        path = f"/namespaces/{_namespace(topic)}/replication"
        cursor = f"pulsar.repl.{other.name}"

        def before() -> None:
            self._converge(kind, (site,))
            site.ask("POST", path, [each for each in NAMES if each != other.name])
            until(
                lambda: not any(cursor in each for each in self._cursors(site, kind)),
                "it is gone",
                seconds=PATIENCE,
            )

        def after() -> None:
            site.ask("POST", path, list(NAMES))
            until(
                lambda: all(cursor in each for each in self._cursors(site, kind)),
                "it is back",
                seconds=PATIENCE,
            )

        self._made += 1
        alone = self._publishers[site.name].alone(topic, str(self._made), _ALONE, before, after)
        self._left_out[other.name] |= alone
        return f"{other.name} from that of {site.name}, for {topic}"

    # In the end

    def _parts(self, kind: str) -> list[str]:
        return [f"{self._topics[kind]}-partition-{index}" for index in range(self._partitions[kind])]

    def _counts(self, kind: str) -> set[int]:
        return {_count(site, self._topics[kind]) for site in self._sites.values()}

    def _cursors(self, site: Site[WiredServer], kind: str) -> list[list[str]]:
        return [site.cursors(part) for part in self._parts(kind)]

    def _converge(self, kind: str, at: Sequence[Site[WiredServer]] = ()) -> None:
        """Waits until all that is stored has been sent everywhere, from one cluster or from all."""
        wanted = {self._partitions[kind]}
        until(
            lambda: self._counts(kind) == wanted,
            f"{wanted} partitions: {self._counts(kind)}",
            seconds=PATIENCE,
        )
        missing: list[str] = []

        def sent() -> bool:
            missing[:] = [
                f"{site.name} {part}: {told}"
                for site in at or self._sites.values()
                for part in self._parts(kind)
                if (told := _unsent(site, part))
            ]
            return not missing

        try:
            until(sent, "all is sent", seconds=PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"not sent: {missing}") from error

    def _published(self, topic: str) -> set[Number]:
        return {number for each in self._publishers.values() for number in each.published(topic)}

    def _check(self, kind: str) -> int:
        """Each message is in each cluster, once where that is promised, and in the order of its origin."""
        topic, again = self._topics[kind], 0
        found: dict[str, list[list[Number]]] = {}
        for name, site in self._sites.items():
            every = [stored(site, part) for part in self._parts(kind)]
            found[name] = [list(dict.fromkeys(part)) for part in every]
            more = sum(map(len, every)) - sum(map(len, found[name]))
            assert not (more and kind == _ONCE), f"{more} are in {name} again: {_repeated(every)}"
            again += more
            have = {number for part in every for number in part}
            wanted = self._published(topic) - self._left_out[name]
            assert have >= wanted, f"{len(wanted - have)} are missing in {name}: {sorted(wanted - have)[:5]}"
            assert have <= wanted, (
                f"{len(have - wanted)} do not belong into {name}: {sorted(have - wanted)[:5]}"
            )
        for origin, parts in found.items():
            for name in self._sites:
                for index, part in enumerate(parts):
                    there = [each for each in found[name][index] if each.producer.startswith(origin)]
                    here = [
                        each
                        for each in part
                        if each.producer.startswith(origin) and each not in self._left_out[name]
                    ]
                    assert there == here, f"{name} has partition {index} in another order than {origin}"
        return again

    def _check_followers(self) -> None:
        for name, follower in self._followers.items():
            missing = follower.finish(self._published(self._topics[_PLAIN]) - self._left_out[name])
            assert not missing, f"{len(missing)} were not delivered in {name}: {sorted(missing)[:5]}"


def _namespace(topic: str) -> str:
    return topic.rsplit("/", 1)[0]


def _tell(site: Site[WiredServer], other: Site[WiredServer]) -> None:
    site.ask("POST", f"/clusters/{other.name}", other.server.record)


def _count(site: Site[WiredServer], topic: str) -> int:
    """0: it has no partitions, or there is no such topic."""
    answer = json.loads(site.ask("GET", f"/persistent/{topic}/partitions", None, (200, 404)))
    return int(answer.get("partitions", 0))


def _unsent(site: Site[WiredServer], part: str) -> str:
    """What a partition has that other clusters have not confirmed; empty: nothing."""
    answer: dict[str, Any] = json.loads(site.ask("GET", f"/persistent/{part}/stats", None, (200, 404, 503)))
    links = answer.get("replication", {})
    told = [
        f"{name} {links.get(name, answer)}"
        for name in NAMES
        if name != site.name
        and (name not in links or links[name]["replicationBacklog"] or not links[name]["connected"])
    ]
    return ", ".join(told)


def stored(site: Site[WiredServer], topic: str) -> list[Number]:
    """All messages of a topic, as a reader gets them."""
    reader = site.client.create_reader(f"persistent://{topic}", pulsar.MessageId.earliest)
    found = []
    while reader.has_message_available():
        found.append(number_of(reader.read_next(int(PATIENCE * 1000))))
    reader.close()
    return found


def _repeated(parts: Sequence[Sequence[Number]]) -> list[Number]:
    repeated = []
    for part in parts:
        seen: set[Number] = set()
        for number in part:
            if number in seen:
                repeated.append(number)
            seen.add(number)
    return repeated[:5]


_FAULTS: dict[str, tuple[Callable[[Round], str], int]] = {
    "a wire was reset": (Round.wire_reset, 3),
    "a wire stood still": (Round.wire_stalled, 3),
    "a wire was cut": (Round.wire_refused, 3),
    "a wrong address": (Round.record, 3),
    "a broker was killed": (Round.kill, 4),
    "a broker was stopped": (Round.stop, 1),
    "unloaded": (Round.unload, 4),
    "partitions were added": (Round.more_partitions, 3),
    "a cursor was reset": (Round.reset, 2),
    "a cluster was taken from a list": (Round.changed_list, 2),
}
