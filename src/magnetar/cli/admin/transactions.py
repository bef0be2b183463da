"""Commands of transaction coordinators and of their transactions."""

from __future__ import annotations

from magnetar.cli.admin.call import Action, Call

_ROOT = "/admin/v3/transactions"


def _id(call: Call) -> str:
    return f"{call['most-sig-bits']}/{call['least-sig-bits']}"


def _coordinator(call: Call) -> dict[str, str]:
    """Returns the query for one coordinator, also number 0, or for all."""
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
    "transactions abort-transaction": lambda call: call.send("POST", f"{_ROOT}/abortTransaction/{_id(call)}"),
    "transactions scale-transactionCoordinators": lambda call: call.send(
        "POST", f"{_ROOT}/transactionCoordinator/replicas", body=call["replicas"]
    ),
}
