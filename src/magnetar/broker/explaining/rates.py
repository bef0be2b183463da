"""Explains rate limits that are used up: whose they are, how much they allow, and what raises them."""

from __future__ import annotations

from typing import Any

from magnetar.broker.explaining.answer import command
from magnetar.broker.flow.dispatch_rates import DispatchLimiter, LimitedBy
from magnetar.broker.subscriptions.persistent import Subscription
from magnetar.naming.topic_name import TopicName

_MORE = 10
"""The factor by which suggested commands raise a limit."""

_OWNERS = {
    LimitedBy.SUBSCRIPTION: "this subscription",
    LimitedBy.TOPIC: "the topic",
    LimitedBy.GROUP: "its resource group",
    LimitedBy.BROKER: "the broker",
}


def of_dispatch(
    subscription: Subscription, limiter: DispatchLimiter | None
) -> tuple[str, dict[str, Any], str, str]:
    """Returns the sentence, the figures, a command that raises the limit, and a command that shows it."""
    if limiter is None:
        return "The dispatch rate is used up.", {}, "", ""
    rate = limiter.rate
    period = max(1, rate.period_seconds)
    bounds = bounds_of(rate.messages, rate.size)
    whose = _OWNERS[limiter.kind]
    sentence = f"The dispatch rate of {whose} is used up: it allows {bounds} per {period} s."
    figures = {
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
    """Names the setting of a rate that no command changes; appended to a sentence."""
    return f" The setting {name} of the broker's configuration sets this rate."


def _raised(amount: int) -> int:
    return amount * _MORE if amount > 0 else -1


def bounds_of(messages: float, size: float) -> str:
    """Returns the limits that are set, in words."""
    found = [f"{int(messages):,} messages"] if messages > 0 else []
    found += [f"{int(size):,} bytes"] if size > 0 else []
    return " and ".join(found)
