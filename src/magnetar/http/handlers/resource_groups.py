"""Resource groups."""

from __future__ import annotations

from magnetar.errors import InvalidRequest
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import Field, body, fields, whole
from magnetar.http.shapes.names import resource_group_of

_RATES = {
    "publishRateInMsgs": Field(whole()),
    "publishRateInBytes": Field(whole(64)),
    "dispatchRateInMsgs": Field(whole()),
    "dispatchRateInBytes": Field(whole(64)),
}
_GROUP = fields(_RATES)


_UNBOUNDED = dict.fromkeys(_RATES, -1)


async def list_groups(application: Application, request: Request) -> Response:
    return json_response(list(await application.admin.resource_groups.names()))


async def get_group(application: Application, request: Request) -> Response:
    found = await application.admin.resource_groups.get(resource_group_of(request.variables))
    return json_response({**_UNBOUNDED, **found})


async def put_group(application: Application, request: Request) -> Response:
    """:raises InvalidRequest: a rate is not a number"""
    given = body(_GROUP, "resourceGroup", required=None)(request)
    if given is None:
        raise InvalidRequest("ResourceGroup is null")
    await application.admin.resource_groups.put(resource_group_of(request.variables), given)
    return nothing()


async def delete_group(application: Application, request: Request) -> Response:
    await application.admin.resource_groups.delete(resource_group_of(request.variables))
    return nothing()
