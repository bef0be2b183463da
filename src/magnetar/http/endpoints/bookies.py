"""Endpoints of bookies and where they stand."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import bookies
from magnetar.http.routing import Endpoint, Parameter
from magnetar.security.operations import ClusterOperation as C

_RACKS = "/admin/v2/bookies/racks-info"
_RACK = _RACKS + "/{bookie}"
_MISSING = {404: "the table does not know the bookie"}

BOOKIES: Sequence[Endpoint] = (
    Endpoint("GET", "/admin/v2/bookies/all", bookies.list_bookies, "list bookies", C.LIST_BOOKIES),
    Endpoint("GET", _RACKS, bookies.list_racks, "where bookies stand", C.GET_RACKS),
    Endpoint("GET", _RACK, bookies.get_rack, "where a bookie stands", C.GET_RACKS, refusals=_MISSING),
    Endpoint(
        "POST",
        _RACK,
        bookies.put_rack,
        "say where a bookie stands",
        C.UPDATE_RACKS,
        parameters=(Parameter("group", "text"),),
        body="BookieInfo",
        refusals={412: "no group, or no path of a rack"},
    ),
    Endpoint(
        "DELETE",
        _RACK,
        bookies.delete_rack,
        "forget where a bookie stands",
        C.UPDATE_RACKS,
        refusals=_MISSING,
    ),
)
