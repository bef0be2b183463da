"""Endpoints of packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magnetar.http.handlers import packages
from magnetar.http.routing import Endpoint
from magnetar.security.authorization import NamespaceOperation

_PATH = "/admin/v3/packages/{type}/{tenant}/{namespace}"
_VERSION = "/{package}/{version}"
_MAY = NamespaceOperation.PACKAGES
_REFUSED = {404: "no such package", 503: "packages are disabled, or the broker is starting or stopping"}

_CHANGED = {409: "the package was changed by another request at the same time"}

_ROWS: Sequence[Endpoint] = (
    Endpoint("GET", "", packages.names, "list packages", _MAY),
    Endpoint("GET", "/{package}", packages.versions, "list versions", _MAY),
    Endpoint("GET", _VERSION, packages.download, "download a package", _MAY),
    Endpoint(
        "POST",
        _VERSION,
        packages.upload,
        "upload a package: a form with metadata and file",
        _MAY,
        body="PackageUpload",
        refusals={404: "the package already exists"},
        reads_as_it_comes=True,
    ),
    Endpoint("DELETE", _VERSION, packages.delete, "delete a package", _MAY, refusals=_CHANGED),
    Endpoint("GET", f"{_VERSION}/metadata", packages.metadata, "metadata of a package", _MAY),
    Endpoint(
        "PUT",
        f"{_VERSION}/metadata",
        packages.set_metadata,
        "change the metadata of a package",
        _MAY,
        body="PackageMetadata",
        refusals=_CHANGED,
    ),
)

PACKAGES: Sequence[Endpoint] = [
    replace(row, path=_PATH + row.path, refusals={**_REFUSED, **row.refusals}) for row in _ROWS
]
