"""Endpoints that publish (PIP-64)."""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.http.handlers import publishing
from magnetar.http.routing import Endpoint, Handler
from magnetar.security.operations import TopicOperation

_REFUSALS = {
    404: "the topic, partition, namespace or schema version does not exist",
    405: "the broker does not serve topics of this kind",
    409: "the schema is not compatible, a quota is exceeded, or another producer has the name or the topic",
    422: "the schema is invalid",
    429: "the publish rate of the topic is exceeded for more than the next 5 seconds",
}


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
