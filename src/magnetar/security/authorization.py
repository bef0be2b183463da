"""Authorization: the operations that need permissions, their targets, and the interface that decides."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

from magnetar.errors import AuthorizationFailure
from magnetar.lazy_dataclass import dataclass
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName
from magnetar.security.authentication import Principal

Touched = NamespaceName | str | None
"""The scope of a change of permissions: a namespace, a tenant by its name, or None for everything."""
Changed = Callable[[Touched], None]


class Authorizer(Protocol):
    """Decides on permissions, from memory if possible; it is never called for single messages."""

    @property
    def asks(self) -> bool:
        """Whether the broker authorizes clients."""
        ...

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        """Returns the reason why a principal lacks a permission; None: the principal has the permission.

        :raises MetadataFailure: permissions cannot be read now
        """
        ...

    def listen(self, changed: Changed) -> None:
        """Registers ``changed``, to be called on the loop with the scope of changed permissions."""
        ...


class EverybodyMay:
    """Permits everything, for a broker without authorization."""

    asks = False

    async def refusal(self, principal: Principal, operation: Operation, target: Target) -> str | None:
        """Always returns None."""
        return None

    def listen(self, changed: Changed) -> None:
        """Does nothing, because these permissions never change."""


async def check(authorizer: Authorizer, principal: Principal, operation: Operation, target: Target) -> None:
    """Checks that a principal may carry out an operation.

    :raises AuthorizationFailure: the principal lacks the permission
    :raises MetadataFailure: permissions cannot be read now
    """
    if not authorizer.asks:
        return
    reason = await authorizer.refusal(principal, operation, target)
    if reason is not None:
        raise AuthorizationFailure(reason)


@dataclass(frozen=True, slots=True)
class Target:
    """The names that an operation refers to; empty for operations on the broker or on a cluster."""

    tenant: str = ""
    namespace: NamespaceName | None = None
    topic: TopicName | None = None
    subscription: str = ""

    @classmethod
    def of_tenant(cls, tenant: str) -> Target:
        return cls(tenant)

    @classmethod
    def of_namespace(cls, namespace: NamespaceName) -> Target:
        return cls(namespace.tenant, namespace)

    @classmethod
    def of_topic(cls, topic: TopicName, subscription: str = "") -> Target:
        """Returns the target of a topic, which may be a partition, or of a subscription of the topic."""
        return cls(topic.tenant, topic.namespace_name, topic, subscription)

    def __str__(self) -> str:
        if self.topic is not None:
            name = str(self.topic)
            return f"subscription {self.subscription} of {name}" if self.subscription else name
        if self.namespace is not None:
            return f"namespace {self.namespace}"
        return f"tenant {self.tenant}" if self.tenant else "the broker"


BROKER_ITSELF = Target()


class Resource(Enum):
    """The kind of an operation's target."""

    NONE = auto()
    """No single target: the operation lists all clusters or tenants."""
    BROKER = auto()
    CLUSTER = auto()
    TENANT = auto()
    NAMESPACE = auto()
    TOPIC = auto()
    SUBSCRIPTION = auto()
    READ_PLAN = auto()


class _Named(Enum):
    """Base class of operations. ``str()`` of a member is its name; members of different enumerations differ,
    even with the same name."""

    @staticmethod
    def _generate_next_value_(name: str, start: int, count: int, last_values: list[str]) -> str:
        return name.lower()

    def __str__(self) -> str:
        return str(self.value)


class ClusterOperation(_Named):
    LIST_CLUSTERS = auto()
    GET_CLUSTER = auto()
    CREATE_CLUSTER = auto()
    UPDATE_CLUSTER = auto()
    DELETE_CLUSTER = auto()
    GET_PEERS = auto()
    UPDATE_PEERS = auto()
    GET_MIGRATION = auto()
    UPDATE_MIGRATION = auto()
    LIST_RESOURCE_GROUPS = auto()
    GET_RESOURCE_GROUP = auto()
    UPDATE_RESOURCE_GROUP = auto()
    DELETE_RESOURCE_GROUP = auto()
    LIST_BOOKIES = auto()
    GET_RACKS = auto()
    UPDATE_RACKS = auto()
    GET_ISOLATION = auto()
    UPDATE_ISOLATION = auto()
    GET_FAILURE_DOMAIN = auto()
    UPDATE_FAILURE_DOMAIN = auto()


class BrokerOperation(_Named):
    LIST_BROKERS = auto()
    GET_LEADER = auto()
    HEALTH_CHECK = auto()
    READY_CHECK = auto()
    GET_VERSION = auto()
    GET_CONFIGURATION = auto()
    UPDATE_CONFIGURATION = auto()
    GET_METRICS = auto()
    GET_STORAGE = auto()
    BACK_UP = auto()
    """Take snapshots, and release them (not in Apache Pulsar)."""
    CHECK_BACKLOG_QUOTAS = auto()
    SHUT_DOWN = auto()
    GET_LOAD = auto()
    GET_QUOTA = auto()
    UPDATE_QUOTA = auto()
    LIST_COORDINATORS = auto()
    GET_TRANSACTIONS = auto()
    """Look at coordinators and at their transactions."""
    ABORT_TRANSACTION = auto()
    SCALE_COORDINATORS = auto()
    END_TRANSACTIONS = auto()
    """Tell topics and subscriptions the outcome of transactions, as coordinators do (not in Apache
    Pulsar)."""


class TenantOperation(_Named):
    LIST_TENANTS = auto()
    GET_TENANT = auto()
    CREATE_TENANT = auto()
    UPDATE_TENANT = auto()
    DELETE_TENANT = auto()
    LIST_NAMESPACES = auto()


class NamespaceOperation(_Named):
    CREATE_NAMESPACE = auto()
    DELETE_NAMESPACE = auto()
    GET_TOPICS = auto()
    GET_BUNDLE = auto()
    DELETE_BUNDLE = auto()
    EXPLAIN_PLACEMENT = auto()
    GET_BUNDLE_QUOTA = auto()
    UPDATE_BUNDLE_QUOTA = auto()
    GET_RESOURCE_AVAILABILITY = auto()
    UNLOAD = auto()
    UPDATE_MIGRATION = auto()
    CLEAR_BACKLOG = auto()
    UNSUBSCRIBE = auto()
    GET_PERMISSION = auto()
    GRANT_PERMISSION = auto()
    REVOKE_PERMISSION = auto()
    GET_METADATA = auto()
    UPDATE_METADATA = auto()
    DELETE_METADATA = auto()
    PACKAGES = auto()


class TopicOperation(_Named):
    LOOKUP = auto()
    GET_BUNDLE_RANGE = auto()
    PRODUCE = auto()
    CONSUME = auto()
    CREATE_TOPIC = auto()
    DELETE_TOPIC = auto()
    GET_METADATA = auto()
    UPDATE_METADATA = auto()
    DELETE_METADATA = auto()
    GET_STATS = auto()
    UNLOAD = auto()
    TERMINATE = auto()
    TRIM_TOPIC = auto()
    COMPACT = auto()
    OFFLOAD = auto()
    TRUNCATE = auto()
    GET_PERMISSION = auto()
    GRANT_PERMISSION = auto()
    REVOKE_PERMISSION = auto()
    GET_BACKLOG_SIZE = auto()
    PEEK_MESSAGES = auto()
    EXPIRE_MESSAGES = auto()
    GET_SUBSCRIPTIONS = auto()
    SUBSCRIBE = auto()
    UNSUBSCRIBE = auto()
    SKIP = auto()
    RESET_CURSOR = auto()
    GET_REPLICATED_SUBSCRIPTION_STATUS = auto()
    SET_REPLICATED_SUBSCRIPTION_STATUS = auto()
    GET_SCHEMA = auto()
    CREATE_SCHEMA = auto()
    CHECK_SCHEMA = auto()
    """Check whether a schema could be added."""
    DELETE_SCHEMA = auto()
    READ_FILES = auto()
    """Make and use read plans (not in Apache Pulsar)."""
    REPLICATE = auto()
    """Publish messages of other clusters, and markers, which only brokers may do; needed in addition to
    PRODUCE (not in Apache Pulsar)."""


class PolicyName(_Named):
    ALL = auto()
    ALLOWED_CLUSTERS = auto()
    ANTI_AFFINITY = auto()
    AUTO_SUBSCRIPTION_CREATION = auto()
    AUTO_TOPIC_CREATION = auto()
    BACKLOG = auto()
    BOOKIE_AFFINITY = auto()
    COMPACTION = auto()
    DEDUPLICATION = auto()
    DEDUPLICATION_SNAPSHOT = auto()
    DELAYED_DELIVERY = auto()
    DISPATCHER_PAUSE_ON_ACK_STATE_PERSISTENT = auto()
    ENCRYPTION = auto()
    ENTRY_FILTERS = auto()
    INACTIVE_TOPIC = auto()
    MAX_CONSUMERS = auto()
    MAX_MESSAGE_SIZE = auto()
    MAX_PRODUCERS = auto()
    MAX_SUBSCRIPTIONS = auto()
    MAX_TOPICS = auto()
    MAX_UNACKED = auto()
    OFFLOAD = auto()
    PERSISTENCE = auto()
    RATE = auto()
    REPLICATION = auto()
    REPLICATION_RATE = auto()
    RESOURCEGROUP = auto()
    RETENTION = auto()
    SCHEMA_COMPATIBILITY_STRATEGY = auto()
    SHADOW_TOPIC = auto()
    SUBSCRIPTION_AUTH_MODE = auto()
    SUBSCRIPTION_EXPIRATION_TIME = auto()
    SUBSCRIPTION_TYPES = auto()
    TTL = auto()


@dataclass(frozen=True, slots=True)
class PolicyOperation:
    """Reading or writing a policy of a namespace or topic."""

    policy: PolicyName
    write: bool

    def __str__(self) -> str:
        return f"{'write' if self.write else 'read'} policy {self.policy}"


Operation = (
    ClusterOperation
    | BrokerOperation
    | TenantOperation
    | NamespaceOperation
    | TopicOperation
    | PolicyOperation
)
