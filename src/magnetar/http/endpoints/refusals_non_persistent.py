"""Operations that require stored messages, and the errors with which Pulsar refuses them for non-persistent
topics.
"""

from __future__ import annotations

from collections.abc import Sequence

from magnetar.errors import (
    BrokerError,
    InvalidRequest,
    NotAllowed,
    PersistentTopicRequired,
    PreconditionFailed,
)

_SUBSCRIPTION = "/{topic}/subscription/{subscription}"
_REPLICATED = _SUBSCRIPTION + "/replicatedSubscriptionStatus"
_EXPIRE_ALL = "/{topic}/all_subscription/expireMessages/{expireTimeInSeconds}"

_NOT_ALLOWED = (
    ("POST", _SUBSCRIPTION + "/skip_all", "Skip messages"),
    ("POST", _SUBSCRIPTION + "/skip/{numMessages}", "Skip messages"),
    ("POST", _SUBSCRIPTION + "/resetcursor/{timestamp}", "Reset-cursor"),
    ("POST", _SUBSCRIPTION + "/resetcursor", "Reset-cursor"),
    ("POST", _SUBSCRIPTION + "/expireMessages/{expireTimeInSeconds}", "Expire messages"),
    ("POST", _SUBSCRIPTION + "/expireMessages", "Expire messages"),
    ("POST", _EXPIRE_ALL, "Expire messages for all subscriptions"),
    ("GET", _SUBSCRIPTION + "/position/{messagePosition}", "Peek messages"),
    ("GET", "/{topic}/lastMessageId", "GetLastMessageId"),
    ("GET", "/{topic}/messageid/{timestamp}", "Get message ID by timestamp"),
    ("PUT", "/{topic}/backlogSize", "Get backlog size"),
    ("POST", "/{topic}/trim", "Trim"),
    ("GET", "/{topic}/ledger/{ledgerId}/entry/{entryId}", "Get message by id"),
    ("GET", "/{topic}/examinemessage", "Examine messages"),
    ("GET", "/{topic}/internal-info", "Internal info"),
    ("PUT", "/{topic}/compaction", "Compaction"),
    ("GET", "/{topic}/compaction", "Compaction status"),
    ("PUT", "/{topic}/offload", "Offload"),
    ("GET", "/{topic}/offload", "Offload status"),
)

_PERSISTENT_ONLY = (
    ("POST", "/{topic}/terminate"),
    ("POST", "/{topic}/terminate/partitions"),
    ("GET", "/{topic}/properties"),
    ("PUT", "/{topic}/properties"),
    ("DELETE", "/{topic}/properties"),
)

NOT_STORED: Sequence[tuple[str, str, type[BrokerError], str]] = (
    *(
        (method, rest, NotAllowed, f"{what} on a non-persistent topic is not allowed")
        for method, rest, what in _NOT_ALLOWED
    ),
    *(
        (method, rest, PersistentTopicRequired, "Need to provide a persistent topic name")
        for method, rest in _PERSISTENT_ONLY
    ),
    (
        "PUT",
        _SUBSCRIPTION,
        InvalidRequest,
        "Create subscription on non-persistent topic can only be done through client",
    ),
    ("GET", _REPLICATED, NotAllowed, "Cannot get replicated subscriptions on non-persistent topics"),
    (
        "POST",
        _REPLICATED,
        NotAllowed,
        "Cannot enable/disable replicated subscriptions on non-persistent topics",
    ),
    ("DELETE", "/{topic}/truncate", PreconditionFailed, "unsupport truncate"),
)
"""For each operation: HTTP method, path relative to the namespace, error class, and reason."""
