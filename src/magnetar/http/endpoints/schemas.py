"""Endpoints of schemas."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import schemas
from magnetar.http.routing import Endpoint

_PATH = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LEGACY = "/admin/schemas/{tenant}/{cluster}/{namespace}/{topic}"

_ROWS = (
    ("GET", "/schema", schemas.get_schema, "the latest version"),
    ("GET", "/schema/{version}", schemas.get_version, "one version"),
    ("GET", "/schemas", schemas.get_all, "all versions"),
    ("GET", "/metadata", schemas.metadata, "where the versions are stored"),
    ("POST", "/schema", schemas.post, "add a version"),
    ("DELETE", "/schema", schemas.delete, "from now on there is none; force keeps nothing"),
    ("POST", "/compatibility", schemas.compatibility, "whether a schema could be added"),
    ("POST", "/version", schemas.version_of, "the version that says the same"),
)

SCHEMAS: Sequence[Endpoint] = [
    Endpoint(method, _PATH + rest, handler, description, (_LEGACY + rest,))
    for method, rest, handler, description in _ROWS
]
