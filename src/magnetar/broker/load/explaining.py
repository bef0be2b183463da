"""Explains why a bundle is at its broker, and what would move it, with numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf

from magnetar.broker.load.candidates import Kinds, may_leave
from magnetar.broker.load.cluster_load import ClusterLoad, namespace_of
from magnetar.broker.load.planning import Placer
from magnetar.broker.load.settings import LoadSettings
from magnetar.lazy_dataclass import dataclass

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PlacementExplanation:
    bundle: str
    owner: str | None
    """The broker that reports the bundle; None: no broker does."""
    here: Sequence[str]
    """Sentences that say why the bundle is at its broker, or where it would be placed."""
    brokers: Mapping[str, str]
    """The reasons for and against placing the bundle at each broker, by broker id."""
    moves: Sequence[str]
    """The events that would move the bundle to another broker."""

    def to_json(self) -> dict[str, object]:
        return {
            "bundle": self.bundle,
            "owner": self.owner,
            "why": list(self.here),
            "brokers": dict(self.brokers),
            "wouldMove": list(self.moves),
        }


def explain(placer: Placer, bundle: str, kinds: Kinds, now: float) -> PlacementExplanation:
    """Explains where a bundle is, why it is there, and what would move it.

    :param placer: a :class:`Placer` whose use changes no state
    :param now: the present time, on the clock of ``ClusterLoad.moved``
    """
    load, settings = placer.load, placer.settings
    owner = next((each for each, broker in load.brokers.items() if bundle in broker.report.bundles), None)
    choice, found = placer.place(bundle, kinds)
    scores = choice.scores if choice is not None else {}
    brokers = {
        broker_id: found.against.get(broker_id) or _score(scores.get(broker_id), settings, broker_id == owner)
        for broker_id in sorted(load.brokers)
    }
    here = [*_history(load, bundle), *found.notes]
    if owner is None:
        here.append("No broker reports that it serves a topic of this bundle.")
    elif choice is None:
        here.append(f"{owner} serves it; if it were unassigned now, no broker could serve it.")
    elif len(scores) > 1 and scores.get(owner) == min(scores.values()):
        here.append(f"{owner} serves it, and no broker is a better choice now.")
    else:
        here.append(f"{owner} serves it; a bundle stays until something moves it.")
    if choice is not None:
        verb = "It would be assigned" if owner is None else "If it were unassigned now, it would be assigned"
        here.append(f"{verb} to {choice.broker_id} ({settings.placement}: {choice.why}).")
    return PlacementExplanation(bundle, owner, here, brokers, _moves(placer, bundle, kinds, owner, now))


def _history(load: ClusterLoad, bundle: str) -> Sequence[str]:
    history = load.bundles.get(bundle)
    if history is None:
        return ["Its traffic is unknown: 100 messages/s are assumed."]
    long, short = history.long, history.short
    return [
        f"Its traffic is {long.rate:.1f} messages/s and {long.throughput / _MIB:.2f} MiB/s in the long "
        f"term, {short.rate:.1f} and {short.throughput / _MIB:.2f} recently; it has {history.topics} "
        "topics."
    ]


def _score(score: float | None, settings: LoadSettings, owner: bool) -> str:
    serves = "serves it" if owner else "could take it"
    if score is None:
        return serves
    if isinf(score):
        return f"{serves}; more than {100 * settings.shed.overloaded:g} % used"
    if settings.placement == "LeastResourceUsageWithWeight":
        return f"{serves}; {100 * score:.1f} % used"
    return f"{serves}; {score:.1f} messages/s in the long term" if score else f"{serves}; idle"


def _moves(placer: Placer, bundle: str, kinds: Kinds, owner: str | None, now: float) -> Sequence[str]:
    load, settings = placer.load, placer.settings
    if owner is None:
        return ["The next lookup of one of its topics assigns it to a broker."]
    told = [f"{owner} stops or loses its session, or an operator unloads the bundle."]
    stays = may_leave(bundle, owner, kinds, load, placer.rules, settings)
    if not (settings.enabled and settings.shedding):
        told.append(
            "No bundle is moved because of load: loadBalancerSheddingEnabled or loadBalancerEnabled is false."
        )
    elif stays:
        told.append(f"It is not moved because of load: {stays}.")
    elif bundle in load.moved:
        left = settings.grace_seconds - (now - load.moved[bundle])
        told.append(f"It was moved recently because of load and stays for another {max(0.0, left):.0f} s.")
    else:
        told.append(_threshold(load, owner, settings))
    return [*told, *_split(load, bundle, settings)]


def _threshold(load: ClusterLoad, owner: str, settings: LoadSettings) -> str:
    usage = {
        each: 100 * broker.report.resources.weighed(settings.weights) for each, broker in load.brokers.items()
    }
    average = sum(usage.values()) / len(usage)
    shed = settings.shed
    least = min(usage.values())
    above, times = f"{100 * shed.above_average:g} points", f"{shed.hits_low} times in a row"
    bounds = {
        "ThresholdShedder": f"the average of {average:.1f} % by {above}, over time",
        "OverloadShedder": f"{100 * shed.overloaded:g} %",
        "AvgShedder": f"the load of the least loaded broker, {least:.1f} %, by {shed.low:g} points, {times}",
    }
    if settings.shedder == "UniformLoadShedder":
        return (
            f"{owner} has {100 * shed.rate_difference:g} % more messages/s than the broker with the "
            f"fewest, or {shed.throughput_factor:g} times the bytes of the broker with the fewest, and has "
            "the highest load of all."
        )
    bound = bounds[settings.shedder]
    return f"{owner} uses more than {bound} ({settings.shedder}); it uses {usage[owner]:.1f} % now."


def _split(load: ClusterLoad, bundle: str, settings: LoadSettings) -> Sequence[str]:
    split = settings.split
    if not split.enabled:
        return []
    return [
        f"It is split at more than {split.max_topics} topics, {split.max_sessions} producers and consumers, "
        f"{split.max_rate:g} messages/s or {split.max_throughput / _MIB:g} MiB/s, while "
        f"{namespace_of(bundle)} has fewer than {split.max_bundles} bundles."
    ]
