"""Packages: their metadata and their contents."""

from __future__ import annotations

import json
from typing import Any

from magnetar.broker.packages.storage import PackageMetadata
from magnetar.errors import InvalidName, InvalidRequest
from magnetar.http.engine.bodies import Parts
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application
from magnetar.http.shapes.fields import Field, body, fields, text, text_map, whole
from magnetar.naming import name_rules as naming
from magnetar.naming.package_name import PackageName, check_parts, check_type

_KIND = "PackageMetadata"
_SHAPE = fields(
    {
        "description": Field(text),
        "contact": Field(text),
        "createTime": Field(whole(64)),
        "modificationTime": Field(whole(64)),
        "properties": Field(text_map),
    }
)
_MOST_METADATA = 64 * 1024
"""Bytes. The metadata of a package is a node of the metadata store, which has a much higher limit."""


def _name(request: Request) -> PackageName:
    """:raises InvalidName: the name violates the rules"""
    names = request.variables
    parts = (names[part] for part in ("type", "tenant", "namespace", "package", "version"))
    try:
        return PackageName(*parts)
    except naming.InvalidName as error:
        raise InvalidName(str(error)) from error


def _place(request: Request) -> tuple[str, str, str]:
    """Returns type, tenant and namespace. :raises InvalidName: one violates the rules"""
    names = request.variables
    kind, tenant, namespace = names["type"], names["tenant"], names["namespace"]
    try:
        check_type(kind)
        check_parts(tenant=tenant, namespace=namespace, name=names.get("package", "name"))
    except naming.InvalidName as error:
        raise InvalidName(str(error)) from error
    return kind, tenant, namespace


def _metadata(given: Any) -> PackageMetadata:
    """:raises InvalidRequest: the metadata has another shape"""
    found = _SHAPE(_KIND, given)
    return PackageMetadata(
        found.get("description", ""),
        found.get("contact"),
        found.get("createTime", 0),
        found.get("modificationTime", 0),
        found.get("properties", {}),
    )


def _shown(metadata: PackageMetadata) -> dict[str, object]:
    contact = {} if metadata.contact is None else {"contact": metadata.contact}
    return {
        "description": metadata.description,
        **contact,
        "createTime": metadata.create_time_ms,
        "modificationTime": metadata.modification_time_ms,
        "properties": dict(metadata.properties),
    }


async def names(application: Application, request: Request) -> Response:
    return json_response(list(await application.admin.packages.names(*_place(request))))


async def versions(application: Application, request: Request) -> Response:
    found = await application.admin.packages.versions(*_place(request), request.variables["package"])
    return json_response(list(found))


async def metadata(application: Application, request: Request) -> Response:
    return json_response(_shown(await application.admin.packages.metadata(_name(request))))


async def set_metadata(application: Application, request: Request) -> Response:
    name = _name(request)
    if len(request.body) > _MOST_METADATA:
        raise InvalidRequest(f"{_KIND} has more than {_MOST_METADATA} bytes")
    given = body(lambda _name, value: _metadata(value), _KIND)(request)
    await application.admin.packages.change_metadata(name, given)
    return nothing()


async def delete(application: Application, request: Request) -> Response:
    await application.admin.packages.delete(_name(request))
    return nothing()


async def upload(application: Application, request: Request) -> Response:
    """Stores a package from a form of two parts, in any order: ``metadata``, as JSON, and ``file``."""
    async with application.admin.packages.upload(_name(request)) as package:
        parts = Parts(request)
        told, came = None, False
        while (part := await parts.next()) is not None:
            if part == "metadata":
                told = _parsed(await parts.whole(_MOST_METADATA))
            elif part == "file" and not came:
                came = True
                while data := await parts.piece():
                    await package.append(data)
            else:
                raise InvalidRequest(
                    f"The form has the unknown part {part!r}: it must have metadata and one file"
                )
        if told is None or not came:
            raise InvalidRequest(f"The form has no {'file' if told else 'metadata'}")
        await package.finish(told)
    return nothing()


def _parsed(data: bytes) -> PackageMetadata:
    """:raises InvalidRequest: the metadata is not JSON, or has another shape"""
    try:
        return _metadata(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{_KIND} is not JSON: {error}") from error


async def download(application: Application, request: Request) -> Response:
    found = await application.admin.packages.download(_name(request))
    told = (("Content-Length", str(found.length)), ("ETag", f'"{found.sha256}"'))
    return Response(200, content_type="application/octet-stream", headers=told, streamed=found)
