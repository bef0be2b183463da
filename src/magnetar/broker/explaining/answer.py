"""The parts of an explanation, and the rate limits that several explanations mention."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import field

from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.topic_name import TopicName

Json = Mapping[str, object]
MOST_NAMED = 20
"""The maximum number of consumers, keys or refusals that an explanation lists."""
_MORE = 10
"""The factor by which suggested commands raise a limit."""
_OWNERS = {
    LimitedBy.SUBSCRIPTION: "this subscription",
    LimitedBy.TOPIC: "the topic",
    LimitedBy.GROUP: "its resource group",
    LimitedBy.BROKER: "the broker",
}


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explains one side of a topic: its producers, or one subscription."""

    reason: str
    """A value of ``Reason`` or ``Hindrance``."""
    sentence: str
    since_ms: int | None = None
    """The time since which the reason applies, in milliseconds since 1970; None: unknown."""
    figures: Json = field(default_factory=dict)
    attempt: str = ""
    """A command that resolves the problem; empty if no command does."""
    look: str = ""
    """A command that shows details; empty if no command does."""

    def json(self, now_ms: int) -> dict[str, object]:
        found: dict[str, object] = {"reason": self.reason, "sentence": self.sentence}
        if self.since_ms is not None:
            found["since"] = self.since_ms
            found["seconds"] = max(0, now_ms - self.since_ms) / 1000
        found["figures"] = dict(self.figures)
        if self.attempt:
            found["try"] = self.attempt
        if self.look:
            found["look"] = self.look
        return found


def command(*words: str | int) -> str:
    """Returns a command as a user types it into a shell."""
    return shlex.join(str(word) for word in words)


def counted(number: int, one: str, many: str = "") -> str:
    """Returns a number with its noun, like ``1 message`` or ``2 messages``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def waits(number: int) -> str:
    """Returns the number of waiting messages with a verb, like ``2 messages wait``."""
    return (
        "no messages wait"
        if not number
        else counted(number, "message") + (" waits" if number == 1 else " wait")
    )


def of_dispatch(
    subscription: Subscription, limiter: DispatchLimiter | None
) -> tuple[str, dict[str, object], str, str]:
    """Explains a dispatch rate that is used up.

    :returns: a sentence, statistics, a command that raises the limit (empty if no command does), and an
        empty string, because no command shows details
    """
    if limiter is None:
        return "The dispatch rate is used up.", {}, "", ""
    rate = limiter.rate
    period = max(1, rate.period_seconds)
    bounds = bounds_of(rate.messages, rate.size)
    whose = _OWNERS[limiter.kind]
    sentence = f"The dispatch rate of {whose} is used up: it allows {bounds} per {period} s."
    figures: dict[str, object] = {
        "limitOf": limiter.kind.value,
        "messages": rate.messages,
        "bytes": rate.size,
        "periodSeconds": period,
        "waitingForIt": limiter.waiting,
    }
    name, topic = subscription.name, subscription.topic
    raised = ("-md", _raised(rate.messages), "-bd", _raised(rate.size), "-dt", period)
    attempt = ""
    if limiter.kind is LimitedBy.SUBSCRIPTION:
        attempt = command(
            *("pulsar-admin", "topicPolicies", "set-subscription-dispatch-rate", "-s", name),
            *raised,
            str(topic.name.base),
        )
    elif limiter.kind is LimitedBy.TOPIC:
        attempt = command("pulsar-admin", "topics", "set-dispatch-rate", *raised, str(topic.name.base))
    elif limiter.kind is LimitedBy.BROKER:
        setting = "dispatchThrottlingRateInMsg" if rate.messages > 0 else "dispatchThrottlingRateInByte"
        sentence += in_settings(setting)
    return sentence, figures, attempt, ""


def raise_publish_rate(topic: TopicName, messages: float, size: float) -> str:
    return command(
        *("pulsar-admin", "topics", "set-publish-rate"),
        *("-m", _raised(int(messages)), "-b", _raised(int(size))),
        str(topic.base),
    )


def in_settings(name: str) -> str:
    """Returns a space and a sentence that names the setting of a rate, for a rate that no command changes."""
    return f" The setting {name} of the broker's configuration sets this rate."


def _raised(amount: int) -> int:
    return amount * _MORE if amount > 0 else -1


def bounds_of(messages: float, size: float) -> str:
    """Returns the limits in words, for example ``10 messages and 1,000 bytes``; 0 or less means no limit."""
    found = [f"{int(messages):,} messages"] if messages > 0 else []
    found += [f"{int(size):,} bytes"] if size > 0 else []
    return " and ".join(found)
