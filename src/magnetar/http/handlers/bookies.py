"""Bookies and their racks."""

from __future__ import annotations

from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import Field, body, fields, text

_INFO = fields({"rack": Field(text), "hostname": Field(text)})


async def list_bookies(application: Application, request: Request) -> Response:
    ids = await application.process.bookies()
    return json_response({"bookies": [{"bookieId": bookie_id} for bookie_id in ids]})


async def list_racks(application: Application, request: Request) -> Response:
    return json_response(await application.admin.bookies.racks())


async def get_rack(application: Application, request: Request) -> Response:
    return json_response(await application.admin.bookies.rack(request.variables["bookie"]))


async def put_rack(application: Application, request: Request) -> Response:
    info = body(_INFO, "bookieInfo")(request)
    group = request.query.get("group", "")
    await application.admin.bookies.put(request.variables["bookie"], group, info)
    return nothing()


async def delete_rack(application: Application, request: Request) -> Response:
    await application.admin.bookies.delete(request.variables["bookie"])
    return nothing()
