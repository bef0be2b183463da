"""Endpoints that publish (PIP-64), and those of the schemas of what is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from magnetar.http.handlers import publishing
from magnetar.http.routing import Endpoint, Handler, Parameter
from magnetar.security.authorization import TopicOperation
from magnetar.security.authorization import TopicOperation as T

_REFUSALS = {
    404: "the topic, partition, namespace or schema version does not exist",
    405: "the broker does not serve topics of this kind",
    409: "the schema is not compatible, a quota is exceeded, or another producer has the name or the topic",
    422: "the schema is invalid",
    429: "the publish rate of the topic is exceeded for more than the next 5 seconds",
}
_PATH = "/admin/v2/schemas/{tenant}/{namespace}/{topic}"
_LEGACY = "/admin/schemas/{tenant}/{cluster}/{namespace}/{topic}"
_BODY = "PostSchemaPayload"
_REFUSED = {409: "the schema is not compatible", 422: "the schema is invalid"}


def _row(domain: str, suffix: str, handler: Handler, description: str) -> Endpoint:
    return Endpoint(
        "POST",
        f"/topics/{domain}/{{tenant}}/{{namespace}}/{{topic}}{suffix}",
        handler,
        description,
        TopicOperation.PRODUCE,
        body="ProducerMessages",
        success=200,
        refusals=_REFUSALS,
        constants={"domain": domain},
    )


PUBLISHING: Sequence[Endpoint] = [
    row
    for domain in ("persistent", "non-persistent")
    for row in (
        _row(domain, "", publishing.publish, "publish messages given as text"),
        _row(
            domain,
            "/partitions/{partition}",
            publishing.publish_to_partition,
            "publish messages given as text to one partition",
        ),
    )
]
_ROWS: Sequence[Endpoint] = (
    Endpoint("GET", "/schema", publishing.get_schema, "the latest version of the schema", T.GET_SCHEMA),
    Endpoint("GET", "/schema/{version}", publishing.get_version, "one version of the schema", T.GET_SCHEMA),
    Endpoint("GET", "/schemas", publishing.get_all, "all versions of the schema", T.GET_SCHEMA),
    Endpoint(
        "GET", "/metadata", publishing.metadata, "ledgers with the versions of the schema", T.GET_SCHEMA
    ),
    Endpoint(
        "POST",
        "/schema",
        publishing.post,
        "add a version of the schema",
        T.CREATE_SCHEMA,
        body=_BODY,
        success=200,
        refusals=_REFUSED,
    ),
    Endpoint(
        "DELETE",
        "/schema",
        publishing.delete,
        "delete the schema; force: delete its versions, too",
        T.DELETE_SCHEMA,
        parameters=(Parameter("force", "truth", "false"),),
        success=200,
    ),
    Endpoint(
        "POST",
        "/compatibility",
        publishing.compatibility,
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
        publishing.version_of,
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
