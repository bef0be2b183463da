"""Magnetar's own metrics of the reasons why messages wait.

A subscription has one sample, or none if all was delivered, so that the samples count waiting subscriptions.
Refused messages of a topic have one sample for each reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from magnetar.broker.stats.figures import TopicMetrics
from magnetar.http.metrics.exposition import Number, family, labels_text

_WAITING = "magnetar_subscription_waiting_seconds"
_REFUSED = "magnetar_topic_refused"
_TOPICS_A_PIECE = 100


def of_topics(rows: Sequence[tuple[str, TopicMetrics]]) -> Iterator[str]:
    """:param rows: label texts and topics; an empty piece is yielded at regular intervals"""
    waiting: list[tuple[str, Number]] = []
    refused: list[tuple[str, Number]] = []
    for number, (labels, topic) in enumerate(rows):
        if not number % _TOPICS_A_PIECE:
            yield ""
        for sub in topic.subscriptions:
            if sub.waits_for:
                own = labels_text({"subscription": sub.name, "reason": sub.waits_for})
                waiting.append((f"{labels},{own}", sub.waits_seconds))
        refused += [(f'{labels},reason="{reason}"', times) for reason, times in topic.refused.items()]
    yield from family(_WAITING, "gauge", waiting)
    yield from family(_REFUSED, "gauge", refused)
