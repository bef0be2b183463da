"""Endpoints of bookies and their racks."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import bookies
from magnetar.http.routing import Endpoint, Parameter
from magnetar.security.operations import ClusterOperation as C

_RACKS = "/admin/v2/bookies/racks-info"
_RACK = _RACKS + "/{bookie}"
_MISSING = {404: "the bookie has no rack"}

BOOKIES: Sequence[Endpoint] = (
    Endpoint("GET", "/admin/v2/bookies/all", bookies.list_bookies, "list bookies", C.LIST_BOOKIES),
    Endpoint("GET", _RACKS, bookies.list_racks, "racks of all bookies", C.GET_RACKS),
    Endpoint("GET", _RACK, bookies.get_rack, "rack of a bookie", C.GET_RACKS, refusals=_MISSING),
    Endpoint(
        "POST",
        _RACK,
        bookies.put_rack,
        "set the rack of a bookie",
        C.UPDATE_RACKS,
        parameters=(Parameter("group", "text"),),
        body="BookieInfo",
        refusals={412: "the group is missing, or the rack is not a path"},
    ),
    Endpoint(
        "DELETE",
        _RACK,
        bookies.delete_rack,
        "remove the rack of a bookie",
        C.UPDATE_RACKS,
        refusals=_MISSING,
    ),
)
