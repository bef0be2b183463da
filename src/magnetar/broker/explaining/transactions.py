"""Explains for which transaction a topic's messages wait, with data from the transaction's coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from magnetar.broker.dispatch.waiting import Reason
from magnetar.broker.explaining.answer import Explanation, command
from magnetar.broker.service import BrokerService
from magnetar.broker.topics.any_topic import AnyTopic
from magnetar.broker.topics.entries import iso_time
from magnetar.broker.topics.persistent import Topic
from magnetar.errors import BrokerError

_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, in ms since 1970."""
Parts = tuple[str, Mapping[str, object], str]
"""A sentence, statistics, and a command that ends the transaction."""


class HidingTransaction:
    """The oldest open transaction of a topic; its coordinator is queried once, and only if a subscription
    waits."""

    def __init__(self, broker: BrokerService, topic: AnyTopic) -> None:
        self._broker = broker
        known = topic.transactions if isinstance(topic, Topic) else None
        self._txn = None if known is None else next(iter(known.open), None)
        self._told: Parts | None = None

    async def explain(self, side: Explanation) -> Explanation:
        """Adds the known facts about the transaction to the explanation of a subscription that waits for
        it."""
        if side.reason != Reason.OPEN_TRANSACTION.value or self._txn is None:
            return side
        if self._told is None:
            self._told = await self._ask(self._txn)
        sentence, figures, attempt = self._told
        return replace(
            side,
            sentence=f"{side.sentence} {sentence}",
            figures={**side.figures, **figures},
            attempt=attempt,
        )

    async def _ask(self, txn: tuple[int, int]) -> Parts:
        coordinators = self._broker.coordinators
        try:
            told = None if coordinators is None else await coordinators.described(txn)
        except BrokerError as error:
            return f"Its coordinator cannot be asked: {error}.", {}, ""
        if told is None:
            sentence = (
                f"Coordinator {txn[0]} does not know the transaction: it has ended, or the coordinator is "
                "being loaded. Messages that arrived after its end are aborted within half a minute."
            )
            return sentence, {"status": "unknown"}, ""
        return _described(txn, told)


def _described(txn: tuple[int, int], told: Mapping[str, object]) -> Parts:
    """Describes an open or ending transaction.

    :param told: ``TransactionMetadata``
    """
    status, unreached = str(told.get("status", "")), told.get("unreached")
    opened, limit = told.get("openTimestamp"), told.get("timeoutAt")
    figures: dict[str, object] = {"status": status}
    sentence = ""
    if isinstance(opened, int) and isinstance(limit, int):
        figures |= {"opened": opened, "timesOut": opened + limit}
        sentence = f"It has been open since {iso_time(opened)}"
        if "owner" in told:
            figures["owner"] = told["owner"]
            sentence += f", was opened by {told['owner']}"
        ends = opened + limit
        sentence += f", and times out at {iso_time(ends)}." if ends <= _LAST_MS else ", and never times out."
    if status == "OPEN":
        least, most = txn[1], txn[0]
        attempt = command("pulsar-admin", "transactions", "abort-transaction", "-m", most, "-l", least)
        return sentence, figures, attempt
    sentence += f" It is {status}: its topics and subscriptions are being notified."
    if isinstance(unreached, Mapping) and unreached:
        figures["unreached"] = dict(unreached)
        reasons = "; ".join(f"{who} ({why})" for who, why in unreached.items())
        sentence += f" These could not be reached yet, and will be notified again: {reasons}."
    return sentence.lstrip(), figures, ""
