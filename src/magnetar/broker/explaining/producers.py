"""Explains why nothing can be published to a topic.

The explanation follows from the current state of the objects that can prevent publishing; if the objects
permit publishing, from the latest refusals (``publishing.hindrances``).
"""

from __future__ import annotations

from magnetar.broker.explaining.answer import (
    Explanation,
    bounds_of,
    command,
    counted,
    in_settings,
    raise_publish_rate,
)
from magnetar.broker.flow.rate_limits import PublishLimiter
from magnetar.broker.publishing.hindrances import Hindrance, Refusal
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.any_topic import AnyTopic, moved_text
from magnetar.broker.topics.persistent import Topic
from magnetar.broker.upkeep.backlog_quotas import Quota, backlog_bytes, slowest
from magnetar.ledger.interface import LedgerError

_LATELY_MS = 60_000
"""How long a refusal counts as the reason, in ms; older refusals are only listed."""


async def explain_producers(broker: BrokerService, topic: AnyTopic) -> Explanation:
    """Explains what stops producers now or, if nothing does, the latest refusal, if it is recent."""
    found = await _holding(broker, topic)
    if found is None:
        found = _refused_lately(topic)
    if found is None:
        connected = len(topic.producers.local())
        producers = counted(connected, "producer")
        verb = "is" if connected == 1 else "are"
        found = Explanation(
            Hindrance.NOTHING.value, f"Nothing prevents publishing: {producers} {verb} connected.", None
        )
    return found


def refusals_of(topic: AnyTopic) -> list[dict[str, object]]:
    """Returns all refusals since the topic was loaded, the latest first."""
    known = topic.refusals.known.items() if topic.refusals is not None else ()
    return [
        {
            "reason": kind.value,
            "times": refusal.times,
            "first": refusal.first_ms,
            "last": refusal.last_ms,
            "message": refusal.text,
        }
        for kind, refusal in sorted(known, key=lambda each: -each[1].last_ms)
    ]


async def _holding(broker: BrokerService, topic: AnyTopic) -> Explanation | None:
    """Explains the condition that stops producers now, even if it has refused no producer yet; None if there
    is no such condition."""
    if topic.closing or topic.fenced:
        sentence = (
            "Another broker has taken over the topic; clients look it up again and find it there."
            if topic.fenced
            else "The topic is being unloaded or deleted; clients look it up again."
        )
        look = command("pulsar-admin", "topics", "lookup", topic.full_name)
        return Explanation(Hindrance.MOVING.value, sentence, None, {}, "", look)
    if topic.moved is not None:
        text = f"{moved_text(topic, topic.moved)}."
        return Explanation(Hindrance.MIGRATED.value, text, _since(topic, Hindrance.MIGRATED))
    if topic.terminated:
        sentence = "The topic is terminated: it never accepts messages again."
        return Explanation(Hindrance.TERMINATED.value, sentence, _since(topic, Hindrance.TERMINATED))
    if isinstance(topic, Topic):
        if broker.upkeep.storage_gate.reason:
            return Explanation(
                Hindrance.STORAGE_FULL.value,
                f"{broker.upkeep.storage_gate.reason}. Producers of all persistent topics are refused until "
                "there is enough free space again; consumers continue.",
                _since(topic, Hindrance.STORAGE_FULL),
                {"refused": broker.upkeep.storage_gate.refused},
                "",
                command("magnetar", "storage", "report"),
            )
        quota = await _quota(broker, topic)
        if quota is not None:
            return quota
    return _rate(broker, topic) or _in_flight(broker, topic) or _caps(topic)


def _known(topic: AnyTopic, kind: Hindrance) -> Refusal | None:
    return topic.refusals.known.get(kind) if topic.refusals is not None else None


def _since(topic: AnyTopic, kind: Hindrance) -> int | None:
    """Returns the time when a producer was first refused for this reason, in ms since 1970; None if no
    producer was refused for this reason."""
    known = _known(topic, kind)
    return None if known is None else known.first_ms


async def _quota(broker: BrokerService, topic: Topic) -> Explanation | None:
    try:
        exceeded = await broker.upkeep.quotas.holding(topic)
    except LedgerError:
        # The age of the backlog is unknown, and producers that connect get that error.
        return None
    behind = slowest(topic)
    if exceeded is None or behind is None:
        return None
    figures: dict[str, object] = {
        "quota": exceeded.value,
        "slowest": behind.name,
        "backlog": behind.backlog(),
    }
    base = str(topic.name.base)
    words = ("pulsar-admin", "topics", "set-backlog-quota")
    if exceeded is Quota.SIZE:
        policy = topic.policies.storage_quota
        used = backlog_bytes(topic)
        figures |= {"limitBytes": policy.limit_bytes, "backlogBytes": used, "policy": policy.policy}
        bound = f"its backlog has {used:,} bytes, the limit is {policy.limit_bytes:,}"
        more = max(2 * used, 2 * policy.limit_bytes)
        attempt = command(*words, "-l", more, "-p", policy.policy, base)
    else:
        policy = topic.policies.age_quota
        figures |= {"limitSeconds": policy.limit_seconds, "policy": policy.policy}
        bound = f"its oldest message is older than the limit of {policy.limit_seconds:,} s"
        more = 2 * policy.limit_seconds
        attempt = command(*words, "-lt", f"{more}s", "-t", "message_age", "-p", policy.policy, base)
    ends = "wait" if policy.policy == "producer_request_hold" else "are refused"
    sentence = (
        f"Producers {ends}: subscription {behind.name} is too far behind ({bound}). Let its consumers catch "
        "up, clear its backlog (pulsar-admin topics clear-backlog) or raise the quota."
    )
    look = command("magnetar", "explain", topic.full_name, "-s", behind.name)
    since = _since(topic, Hindrance.BACKLOG_QUOTA)
    return Explanation(Hindrance.BACKLOG_QUOTA.value, sentence, since, figures, attempt, look)


def _rate(broker: BrokerService, topic: AnyTopic) -> Explanation | None:
    """Explains the publish rate because of which connections are not read now; None if no rate is
    exceeded."""
    limits: list[tuple[str, str, PublishLimiter | None]] = [
        ("Topic", "the topic", topic.publish_limiter),
        ("ResourceGroup", "its resource group", None if topic.group is None else topic.group.publish),
        ("Broker", "the broker", broker.limits.publish_limiter),
    ]
    now = broker.io.clock.monotonic()
    for kind, whose, limiter in limits:
        if limiter is None or limiter.held_until <= now or not topic.producers:
            continue
        messages, size = limiter.rates
        attempt = ""
        if kind == "Topic":
            attempt = raise_publish_rate(topic.name, messages, size)
        sentence = (
            f"Publishing exceeds the rate of {whose} ({bounds_of(messages, size)} per second): "
            f"the broker does not read the connections for another {limiter.held_until - now:,.1f} s."
        )
        if kind == "Broker":
            sentence += in_settings(
                "brokerPublisherThrottlingMax" + ("MessageRate" if messages else "ByteRate")
            )
        figures = {"limitOf": kind, "messages": messages, "bytes": size, "heldBack": limiter.exceeded}
        since = broker.io.clock.wall_ms() - int((now - limiter.held_since) * 1000)
        return Explanation(Hindrance.PUBLISH_RATE.value, sentence, since, figures, attempt)
    return None


def _in_flight(broker: BrokerService, topic: AnyTopic) -> Explanation | None:
    held = [each.name for each in topic.producers.values() if each.connection.held_back]
    if not held:
        return None
    sentence = (
        f"Too much data is on its way to the disk. The broker does not read the connections of "
        f"{counted(len(held), 'producer')} until part of it is written: the disk is slower than the "
        "producers."
    )
    figures = {
        "producers": len(held),
        "pending": sum(each.pending for each in topic.producers.values()),
        "bytesOfBroker": broker.limits.publish_buffer.used,
    }
    look = command("magnetar", "storage", "report")
    return Explanation(Hindrance.IN_FLIGHT.value, sentence, None, figures, "", look)


def _caps(topic: AnyTopic) -> Explanation | None:
    """Explains that the connected producers prevent further producers: the limit of producers is reached, or
    a producer has exclusive access. None: neither is the case, or no further producer was refused or waits.
    """
    cap, count = topic.policies.max_producers, len(topic.producers.local())
    known = _known(topic, Hindrance.MAX_PRODUCERS)
    if known is not None and cap and count >= cap:
        attempt = command("pulsar-admin", "topics", "set-max-producers", "-p", cap * 2, str(topic.name.base))
        sentence = f"The maximum number of producers ({cap:,}) is connected; others are refused."
        named = {"limit": cap, "producers": count, "times": known.times}
        return Explanation(Hindrance.MAX_PRODUCERS.value, sentence, known.first_ms, named, attempt)
    known = _known(topic, Hindrance.EXCLUSIVE_PRODUCER)
    owner = topic.access.owner
    if owner is not None and (known is not None or topic.access.waiting):
        sentence = (
            f"Producer {owner.name} at {owner.address} has exclusive access; other producers are refused or "
            f"wait for it to leave ({topic.access.waiting} waiting)."
        )
        figures: dict[str, object] = {
            "owner": owner.name,
            "address": owner.address,
            "waiting": topic.access.waiting,
        }
        look = command("pulsar-admin", "topics", "stats", topic.full_name)
        since = None if known is None else known.first_ms
        return Explanation(Hindrance.EXCLUSIVE_PRODUCER.value, sentence, since, figures, "", look)
    return None


def _refused_lately(topic: AnyTopic) -> Explanation | None:
    """Explains the latest refusal for a reason that the topic's state does not show; None if there was no
    such refusal recently.
    """
    known = topic.refusals.known if topic.refusals is not None else {}
    after = topic.clock.wall_ms() - _LATELY_MS
    lately = {kind: known[kind] for kind in _TOLD if kind in known and known[kind].last_ms >= after}
    if not lately:
        return None
    kind, refusal = max(lately.items(), key=lambda each: each[1].last_ms)
    attempt, look = "", ""
    if kind is Hindrance.SCHEMA_INCOMPATIBLE:
        look = command("pulsar-admin", "schemas", "get", str(topic.name.base))
    elif kind is Hindrance.ENCRYPTION_REQUIRED:
        namespace = str(topic.name.namespace_name)
        attempt = command("pulsar-admin", "namespaces", "set-encryption-required", "--disable", namespace)
    elif kind is Hindrance.NAME_TAKEN:
        look = command("pulsar-admin", "topics", "stats", topic.full_name)
    elif kind is Hindrance.NOT_STORED:
        look = command("magnetar", "storage", "report")
    elif topic.policies.max_message_size:
        size = topic.policies.max_message_size * 2
        attempt = command("pulsar-admin", "topics", "set-max-message-size", "-m", size, str(topic.name.base))
    sentence = f"{_TOLD[kind]}: {refusal.text}"
    figures = {"times": refusal.times, "last": refusal.last_ms}
    return Explanation(kind.value, sentence, refusal.first_ms, figures, attempt, look)


_TOLD = {
    Hindrance.SCHEMA_INCOMPATIBLE: "A producer's schema is not compatible with the schemas of the topic",
    Hindrance.ENCRYPTION_REQUIRED: "Unencrypted messages are refused",
    Hindrance.NAME_TAKEN: "A producer was refused because of its name",
    Hindrance.MESSAGE_REFUSED: "Messages were refused",
    Hindrance.NOT_STORED: "Messages could not be written, and their producers were closed",
}
