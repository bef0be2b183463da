"""Endpoints for packages, the files that functions and connectors consist of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from magnetar.broker.admin.packages import Download, PackageAdmin
from magnetar.broker.packages import PackageMetadata
from magnetar.errors import InvalidName, InvalidRequest
from magnetar.http.calls import Several, as_json, calls
from magnetar.http.engine.bodies import Parts
from magnetar.http.engine.message import Request, Response, json_response, nothing
from magnetar.http.routing import Application, Endpoint
from magnetar.http.shapes.fields import Field, body, fields, text, text_map, whole
from magnetar.http.shapes.names import variable
from magnetar.naming import name_rules as naming
from magnetar.naming.package_name import PackageName, check_parts, check_type
from magnetar.security.authorization import NamespaceOperation

_PATH = "/admin/v3/packages/{type}/{tenant}/{namespace}"
_VERSION = "/{package}/{version}"
_MAY = NamespaceOperation.PACKAGES
_REFUSED = {404: "no such package", 503: "packages are disabled, or the broker is starting or stopping"}

_CHANGED = {409: "the package was changed by another request at the same time"}

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
"""Maximum size of a package's metadata, in bytes; the metadata node that stores it could hold much more."""


def _name(request: Request) -> PackageName:
    """Returns the name of the package in the path.

    :raises InvalidName: the name violates the rules
    """
    names = request.variables
    parts = (names[part] for part in ("type", "tenant", "namespace", "package", "version"))
    try:
        return PackageName(*parts)
    except naming.InvalidName as error:
        raise InvalidName(str(error)) from error


def _place(request: Request) -> Several:
    """Returns the type of packages, the tenant and the namespace that the path names.

    :raises InvalidName: the type, the tenant or the namespace is invalid
    """
    names = request.variables
    kind, tenant, namespace = names["type"], names["tenant"], names["namespace"]
    try:
        check_type(kind)
        check_parts(tenant=tenant, namespace=namespace, name=names.get("package", "name"))
    except naming.InvalidName as error:
        raise InvalidName(str(error)) from error
    return Several((kind, tenant, namespace))


def _metadata(given: Any) -> PackageMetadata:
    """Checks and converts the metadata of a package, given as parsed JSON.

    :raises InvalidRequest: a field has the wrong type
    """
    found = _SHAPE(_KIND, given)
    return PackageMetadata(
        found.get("description", ""),
        found.get("contact"),
        found.get("createTime", 0),
        found.get("modificationTime", 0),
        found.get("properties", {}),
    )


def _shown(metadata: PackageMetadata) -> Response:
    contact = {} if metadata.contact is None else {"contact": metadata.contact}
    return json_response(
        {
            "description": metadata.description,
            **contact,
            "createTime": metadata.create_time_ms,
            "modificationTime": metadata.modification_time_ms,
            "properties": dict(metadata.properties),
        }
    )


async def _upload(application: Application, request: Request) -> Response:
    """Stores a package that is sent as a form with the parts ``metadata`` (JSON) and ``file``, in any
    order.
    """
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
                    f"The form has the unknown part {part!r}; send the parts metadata and file"
                )
        if told is None or not came:
            raise InvalidRequest(f"The form has no part {'file' if told else 'metadata'}")
        await package.finish(told)
    return nothing()


def _parsed(data: bytes) -> PackageMetadata:
    """Parses the metadata of a package.

    :raises InvalidRequest: the metadata is not JSON, or a field has the wrong type
    """
    try:
        return _metadata(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{_KIND} is not JSON: {error}") from error


def _given_metadata(request: Request) -> PackageMetadata:
    """Returns the package metadata in the body.

    :raises InvalidRequest: the body is too large or not JSON, or a field has the wrong type
    """
    if len(request.body) > _MOST_METADATA:
        raise InvalidRequest(f"{_KIND} has more than {_MOST_METADATA} bytes")
    found: PackageMetadata = body(lambda _name, value: _metadata(value), _KIND)(request)
    return found


def _download(found: Download) -> Response:
    told = (("Content-Length", str(found.length)), ("ETag", f'"{found.sha256}"'))
    return Response(200, content_type="application/octet-stream", headers=told, streamed=found)


_ROWS: Sequence[Endpoint] = (
    Endpoint("GET", "", calls(PackageAdmin.names, _place, answer=as_json), "list packages", _MAY),
    Endpoint(
        "GET",
        "/{package}",
        calls(PackageAdmin.versions, _place, variable("package"), answer=as_json),
        "list versions",
        _MAY,
    ),
    Endpoint(
        "GET", _VERSION, calls(PackageAdmin.download, _name, answer=_download), "download a package", _MAY
    ),
    Endpoint(
        "POST",
        _VERSION,
        _upload,
        "upload a package: a form with metadata and file",
        _MAY,
        body="PackageUpload",
        refusals={404: "the package already exists"},
        reads_as_it_comes=True,
    ),
    Endpoint(
        "DELETE", _VERSION, calls(PackageAdmin.delete, _name), "delete a package", _MAY, refusals=_CHANGED
    ),
    Endpoint(
        "GET",
        f"{_VERSION}/metadata",
        calls(PackageAdmin.metadata, _name, answer=_shown),
        "metadata of a package",
        _MAY,
    ),
    Endpoint(
        "PUT",
        f"{_VERSION}/metadata",
        calls(PackageAdmin.change_metadata, _name, _given_metadata),
        "change the metadata of a package",
        _MAY,
        body="PackageMetadata",
        refusals=_CHANGED,
    ),
)

PACKAGES: Sequence[Endpoint] = [
    replace(row, path=_PATH + row.path, refusals={**_REFUSED, **row.refusals}) for row in _ROWS
]
