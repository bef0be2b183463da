"""Commands of bookies and their racks."""

from __future__ import annotations

from magnetar.cli.admin.arguments import UsageError
from magnetar.cli.admin.call import Action, Call, piece

_RACKS = "/admin/v2/bookies/racks-info"


def _rack(call: Call) -> str:
    return f"{_RACKS}/{piece(call['bookie'])}"


def _set_rack(call: Call) -> object:
    if not call["group"]:
        raise UsageError("--group is empty")
    given = {"rack": call["rack"], "hostname": call["hostname"]}
    info = {name: value for name, value in given.items() if value is not None}
    return call.send("POST", _rack(call), {"group": call["group"]}, info)


ACTIONS: dict[str, Action] = {
    "bookies list-bookies": lambda call: call.ask("GET", "/admin/v2/bookies/all"),
    "bookies racks-placement": lambda call: call.ask("GET", _RACKS),
    "bookies get-bookie-rack": lambda call: call.ask("GET", _rack(call)),
    "bookies set-bookie-rack": _set_rack,
    "bookies delete-bookie-rack": lambda call: call.send("DELETE", _rack(call)),
}
