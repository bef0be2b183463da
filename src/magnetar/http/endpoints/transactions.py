"""Endpoints of transaction coordinators, their transactions, and transactions on topics and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from magnetar.broker.admin.coordinators import CoordinatorAdmin
from magnetar.broker.admin.topic_transactions import REST as _ROOT
from magnetar.broker.admin.topic_transactions import TopicTransactionAdmin
from magnetar.errors import InvalidRequest
from magnetar.http.calls import as_json, calls
from magnetar.http.engine.message import Request
from magnetar.http.routing import Endpoint, Parameter
from magnetar.http.shapes.fields import body, flag, whole
from magnetar.http.shapes.names import TOPIC, number_in_path, variable
from magnetar.security.authorization import BrokerOperation as B
from magnetar.security.authorization import TopicOperation as T

_TRANSACTION = "/{mostSigBits}/{leastSigBits}"
_OFF = {503: "transactions are disabled"}
_UNKNOWN = {**_OFF, 404: "the coordinator is not loaded, or has no such transaction"}
_MOST, _LEAST = number_in_path("mostSigBits"), number_in_path("leastSigBits")
_AUTHORITATIVE = flag("authoritative")


_TOPIC = "/{tenant}/{namespace}/{topic}"
_SUBSCRIPTION = _TOPIC + "/{subscription}"
_NO_TOPIC = {**_OFF, 404: "no such topic"}
_NO_SUBSCRIPTION = {**_OFF, 404: "no such topic or subscription"}
_SUB = variable("subscription")
_METADATA = (Parameter("metadata", "truth", "false"),)
_LOW_WATER = Parameter("lowWaterMarks", "truth", "false")


def _number(name: str) -> Callable[[Request], int | None]:
    """Returns a shape that takes a number from a query parameter; the shape returns None if there is no such
    parameter.
    """

    def shape(request: Request) -> int | None:
        text = request.query.get(name)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise InvalidRequest(f"{name} must be a whole number, not {text!r}") from None

    return shape


_coordinator = _number("coordinatorId")


TRANSACTIONS: Sequence[Endpoint] = (
    Endpoint(
        "GET",
        f"{_ROOT}/coordinators",
        calls(CoordinatorAdmin.addresses, answer=as_json),
        "list transaction coordinators and their brokers",
        B.LIST_COORDINATORS,
        refusals=_OFF,
    ),
    Endpoint(
        "POST",
        f"{_ROOT}/transactionCoordinator/replicas",
        calls(CoordinatorAdmin.raise_count, body(whole(), "replicas")),
        "raise the number of transaction coordinators",
        B.SCALE_COORDINATORS,
        body="int",
        refusals={**_OFF, 406: "there are as many already"},
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/coordinatorStats",
        calls(CoordinatorAdmin.stats, _coordinator, answer=as_json, authoritative=_AUTHORITATIVE),
        "statistics of transaction coordinators",
        B.GET_TRANSACTIONS,
        parameters=(Parameter("coordinatorId", "whole"), Parameter("authoritative", "truth", "false")),
        refusals=_UNKNOWN,
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/coordinatorInternalStats/{{coordinatorId}}",
        calls(
            CoordinatorAdmin.internal_stats,
            number_in_path("coordinatorId"),
            answer=as_json,
            metadata=flag("metadata"),
            authoritative=_AUTHORITATIVE,
        ),
        "the log of a transaction coordinator",
        B.GET_TRANSACTIONS,
        parameters=(Parameter("metadata", "truth", "false"), Parameter("authoritative", "truth", "false")),
        refusals=_UNKNOWN,
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/transactionMetadata{_TRANSACTION}",
        calls(CoordinatorAdmin.transaction, _MOST, _LEAST, answer=as_json, authoritative=_AUTHORITATIVE),
        "a transaction that has not ended",
        B.GET_TRANSACTIONS,
        parameters=(Parameter("authoritative", "truth", "false"),),
        refusals=_UNKNOWN,
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/slowTransactions/{{timeout}}",
        calls(
            CoordinatorAdmin.slow,
            number_in_path("timeout"),
            _coordinator,
            answer=as_json,
            authoritative=_AUTHORITATIVE,
        ),
        "transactions that are open for longer than this many milliseconds",
        B.GET_TRANSACTIONS,
        parameters=(Parameter("coordinatorId", "whole"), Parameter("authoritative", "truth", "false")),
        refusals=_UNKNOWN,
    ),
    Endpoint(
        "POST",
        f"{_ROOT}/abortTransaction{_TRANSACTION}",
        calls(CoordinatorAdmin.abort, _MOST, _LEAST, authoritative=_AUTHORITATIVE),
        "abort a transaction",
        B.ABORT_TRANSACTION,
        parameters=(Parameter("authoritative", "truth", "false"),),
        refusals={**_UNKNOWN, 409: "the transaction is being committed"},
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/transactionBufferStats{_TOPIC}",
        calls(
            TopicTransactionAdmin.buffer,
            TOPIC,
            answer=as_json,
            low_water=flag("lowWaterMarks"),
            segments=flag("segmentStats"),
            aborted=flag("abortedTransactions"),
        ),
        "which messages of a topic transactions hide",
        T.GET_STATS,
        parameters=(
            _LOW_WATER,
            Parameter("segmentStats", "truth", "false"),
            Parameter("abortedTransactions", "truth", "false"),
        ),
        refusals=_NO_TOPIC,
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/transactionBufferInternalStats{_TOPIC}",
        calls(TopicTransactionAdmin.buffer_internal, TOPIC, answer=as_json, metadata=flag("metadata")),
        "the system topics with the snapshots of a topic's transactions",
        T.GET_STATS,
        parameters=_METADATA,
        refusals={404: "no such topic, or nothing in its namespace has had transactions"},
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/transactionInBufferStats{_TOPIC}{_TRANSACTION}",
        calls(TopicTransactionAdmin.in_buffer, TOPIC, _MOST, _LEAST, answer=as_json),
        "where a transaction begins in a topic, and whether it was aborted",
        T.GET_STATS,
        refusals=_NO_TOPIC,
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/pendingAckStats{_SUBSCRIPTION}",
        calls(
            TopicTransactionAdmin.pending_acks, TOPIC, _SUB, answer=as_json, low_water=flag("lowWaterMarks")
        ),
        "how many transactions have acknowledgements that wait for their end",
        T.GET_STATS,
        parameters=(_LOW_WATER,),
        refusals=_NO_SUBSCRIPTION,
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/pendingAckInternalStats{_SUBSCRIPTION}",
        calls(
            TopicTransactionAdmin.pending_acks_internal,
            TOPIC,
            _SUB,
            answer=as_json,
            metadata=flag("metadata"),
        ),
        "the log of acknowledgements that wait for the end of their transaction",
        T.GET_STATS,
        parameters=_METADATA,
        refusals={**_OFF, 404: "no such topic or subscription, or no transaction has acknowledged anything"},
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/transactionInPendingAckStats{_SUBSCRIPTION}{_TRANSACTION}",
        calls(TopicTransactionAdmin.in_pending_acks, TOPIC, _SUB, _MOST, _LEAST, answer=as_json),
        "how far a transaction acknowledges cumulatively",
        T.GET_STATS,
        refusals=_NO_SUBSCRIPTION,
    ),
    Endpoint(
        "GET",
        f"{_ROOT}/positionStatsInPendingAck{_SUBSCRIPTION}/{{ledgerId}}/{{entryId}}",
        calls(
            TopicTransactionAdmin.position,
            TOPIC,
            _SUB,
            number_in_path("ledgerId"),
            number_in_path("entryId"),
            _number("batchIndex"),
            answer=as_json,
        ),
        "whether a transaction acknowledges a message",
        T.GET_STATS,
        parameters=(Parameter("batchIndex", "whole"),),
        refusals=_NO_SUBSCRIPTION,
    ),
)
