"""Endpoints of transaction coordinators and of their transactions."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.broker.admin.coordinators import CoordinatorAdmin
from magnetar.errors import InvalidRequest
from magnetar.http.calls import as_json, calls
from magnetar.http.engine.message import Request
from magnetar.http.routing import Endpoint, Parameter
from magnetar.http.shapes.fields import body, flag, whole
from magnetar.http.shapes.names import number_in_path
from magnetar.security.authorization import BrokerOperation as B

_ROOT = "/admin/v3/transactions"
_TRANSACTION = "/{mostSigBits}/{leastSigBits}"
_OFF = {503: "transactions are disabled"}
_UNKNOWN = {**_OFF, 404: "the coordinator is not loaded, or has no such transaction"}
_MOST, _LEAST = number_in_path("mostSigBits"), number_in_path("leastSigBits")
_AUTHORITATIVE = flag("authoritative")


def _coordinator(request: Request) -> int | None:
    """Returns the coordinator in the query; None: all.

    :raises InvalidRequest: it is not a number
    """
    text = request.query.get("coordinatorId")
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise InvalidRequest(f"coordinatorId must be a whole number, not {text!r}") from None


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
)
