"""Commands for transaction coordinators, their transactions, and transactions on topics and subscriptions."""

from __future__ import annotations

from urllib.parse import quote

from magnetar.cli.admin.call import Action, Call
from magnetar.naming.topic_name import TopicName

_ROOT = "/admin/v3/transactions"


def _id(call: Call) -> str:
    return f"{call['most-sig-bits']}/{call['least-sig-bits']}"


def _topic(call: Call, what: str, *pieces: object) -> str:
    """Returns the path, in the admin interface, of a request about transactions on the command's topic.

    :param what: the segment of the path that names the kind of the request
    :param pieces: the segments after the topic, not yet percent-encoded
    :raises InvalidName: the topic name is not valid
    """
    name = TopicName.parse(str(call["topic"]))
    rest = (name.local, *map(str, pieces))
    return "/".join((_ROOT, what, str(name.namespace_name), *(quote(each, "") for each in rest)))


def _coordinator(call: Call) -> dict[str, str]:
    """Returns the query parameters that select the coordinator in ``--coordinator-id``; without this option,
    an empty dict, which selects all coordinators.
    """
    number = call["coordinator-id"]
    return {} if number is None else {"coordinatorId": str(number)}


ACTIONS: dict[str, Action] = {
    "transactions coordinators-list": lambda call: call.ask("GET", f"{_ROOT}/coordinators"),
    "transactions coordinator-stats": lambda call: call.ask(
        "GET", f"{_ROOT}/coordinatorStats", _coordinator(call)
    ),
    "transactions coordinator-internal-stats": lambda call: call.ask(
        "GET",
        f"{_ROOT}/coordinatorInternalStats/{call['coordinator-id']}",
        {"metadata": call["metadata"]},
    ),
    "transactions transaction-metadata": lambda call: call.ask(
        "GET", f"{_ROOT}/transactionMetadata/{_id(call)}"
    ),
    "transactions slow-transactions": lambda call: call.ask(
        "GET",
        f"{_ROOT}/slowTransactions/{call['time']}",
        _coordinator(call),
    ),
    "transactions transaction-buffer-stats": lambda call: call.ask(
        "GET",
        _topic(call, "transactionBufferStats"),
        {"lowWaterMarks": call["low-water-mark"], "segmentStats": call["segment-stats"]},
    ),
    "transactions buffer-snapshot-internal-stats": lambda call: call.ask(
        "GET", _topic(call, "transactionBufferInternalStats"), {"metadata": call["metadata"]}
    ),
    "transactions transaction-in-buffer-stats": lambda call: call.ask(
        "GET",
        _topic(call, "transactionInBufferStats", call["most-sig-bits"], call["least-sig-bits"]),
    ),
    "transactions pending-ack-stats": lambda call: call.ask(
        "GET",
        _topic(call, "pendingAckStats", call["sub-name"]),
        {"lowWaterMarks": call["low-water-mark"]},
    ),
    "transactions pending-ack-internal-stats": lambda call: call.ask(
        "GET",
        _topic(call, "pendingAckInternalStats", call["subscription-name"]),
        {"metadata": call["metadata"]},
    ),
    "transactions transaction-in-pending-ack-stats": lambda call: call.ask(
        "GET",
        _topic(
            call,
            "transactionInPendingAckStats",
            call["sub-name"],
            call["most-sig-bits"],
            call["least-sig-bits"],
        ),
    ),
    "transactions position-stats-in-pending-ack": lambda call: call.ask(
        "GET",
        _topic(
            call,
            "positionStatsInPendingAck",
            call["subscription-name"],
            call["ledger-id"],
            call["entry-id"],
        ),
        {"batchIndex": None if call["batch-index"] is None else str(call["batch-index"])},
    ),
    "transactions abort-transaction": lambda call: call.send("POST", f"{_ROOT}/abortTransaction/{_id(call)}"),
    "transactions scale-transactionCoordinators": lambda call: call.send(
        "POST", f"{_ROOT}/transactionCoordinator/replicas", body=call["replicas"]
    ),
}
