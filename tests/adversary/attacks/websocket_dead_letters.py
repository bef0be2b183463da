"""A consumer names a topic of another tenant for its dead letters, to which the service may publish."""

from __future__ import annotations

from urllib.parse import quote

from target import FOREIGN, OWN, Target, path_of

_TOPICS = (FOREIGN, "persistent://b/ns/new", "b/ns/t", "non-persistent://b/ns/t", FOREIGN + "-partition-0")
_OTHERS = "subscriptionType=Shared&negativeAckRedeliveryDelay=50&subscriptionInitialPosition=Earliest"


def attack(target: Target) -> None:
    for topic in _TOPICS:
        for policy in ("&maxRedeliverCount=1", ""):
            query = f"{_OTHERS}{policy}&deadLetterTopic={quote(topic, '')}"
            path = f"consumer/{path_of(OWN)}/dead?{query}"
            assert target.web_socket_status(path, "a-user") == 403, path
    for kind in (
        f"consumer/{path_of(FOREIGN)}/s",
        f"reader/{path_of(FOREIGN)}",
        f"producer/{path_of(FOREIGN)}",
    ):
        assert target.web_socket_status(kind, "a-user") == 403, kind
    # A subscription with slashes, whose default topic for dead letters is a name in another namespace.
    slashes = f"consumer/{path_of(OWN)}/{quote('/../b/ns', '')}?{_OTHERS}&maxRedeliverCount=1"
    assert target.web_socket_status(slashes, "a-user") in (400, 403)
