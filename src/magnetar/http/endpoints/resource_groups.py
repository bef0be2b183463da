"""Endpoints of resource groups."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import resource_groups
from magnetar.http.routing import Endpoint
from magnetar.security.operations import ClusterOperation as C

_GROUPS = "/admin/v2/resourcegroups"
_GROUP = _GROUPS + "/{resourcegroup}"
_MISSING = {404: "no such resource group"}

RESOURCE_GROUPS: Sequence[Endpoint] = (
    Endpoint("GET", _GROUPS, resource_groups.list_groups, "list resource groups", C.LIST_RESOURCE_GROUPS),
    Endpoint(
        "GET",
        _GROUP,
        resource_groups.get_group,
        "rates of a resource group",
        C.GET_RESOURCE_GROUP,
        refusals=_MISSING,
    ),
    Endpoint(
        "PUT",
        _GROUP,
        resource_groups.put_group,
        "create or change a resource group",
        C.UPDATE_RESOURCE_GROUP,
        body="ResourceGroup",
    ),
    Endpoint(
        "DELETE",
        _GROUP,
        resource_groups.delete_group,
        "delete a resource group",
        C.DELETE_RESOURCE_GROUP,
        refusals=_MISSING,
    ),
)
