"""Endpoints of schemas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magnetar.http.handlers import schemas
from magnetar.http.routing import Endpoint, Parameter
from magnetar.security.operations import TopicOperation as T

_PATH = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LEGACY = "/admin/schemas/{tenant}/{cluster}/{namespace}/{topic}"

_BODY = "PostSchemaPayload"
_REFUSED = {409: "the schema is not compatible", 422: "the schema is invalid"}

_ROWS: Sequence[Endpoint] = (
    Endpoint("GET", "/schema", schemas.get_schema, "the latest version of the schema", T.GET_SCHEMA),
    Endpoint("GET", "/schema/{version}", schemas.get_version, "one version of the schema", T.GET_SCHEMA),
    Endpoint("GET", "/schemas", schemas.get_all, "all versions of the schema", T.GET_SCHEMA),
    Endpoint("GET", "/metadata", schemas.metadata, "ledgers with the versions of the schema", T.GET_SCHEMA),
    Endpoint(
        "POST",
        "/schema",
        schemas.post,
        "add a version of the schema",
        T.CREATE_SCHEMA,
        body=_BODY,
        success=200,
        refusals=_REFUSED,
    ),
    Endpoint(
        "DELETE",
        "/schema",
        schemas.delete,
        "delete the schema; force: delete its versions, too",
        T.DELETE_SCHEMA,
        parameters=(Parameter("force", "truth", "false"),),
        success=200,
    ),
    Endpoint(
        "POST",
        "/compatibility",
        schemas.compatibility,
        "whether a schema is compatible",
        T.CHECK_SCHEMA,
        asks=True,
        body=_BODY,
        success=202,
        refusals=_REFUSED,
    ),
    Endpoint(
        "POST",
        "/version",
        schemas.version_of,
        "the version with the same schema",
        T.GET_SCHEMA,
        asks=True,
        body=_BODY,
        success=200,
        refusals=_REFUSED,
    ),
)

SCHEMAS: Sequence[Endpoint] = [
    replace(row, path=_PATH + row.path, aliases=(_LEGACY + row.path,)) for row in _ROWS
]
