"""The target of an operation."""

from __future__ import annotations

from magnetar.lazy_dataclass import dataclass
from magnetar.naming.namespace_name import NamespaceName
from magnetar.naming.topic_name import TopicName


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
        """Returns the target of a topic; for a partition it also has the partitioned topic."""
        return cls(topic.tenant, topic.namespace_name, topic, subscription)

    def __str__(self) -> str:
        if self.topic is not None:
            name = str(self.topic)
            return f"subscription {self.subscription} of {name}" if self.subscription else name
        if self.namespace is not None:
            return f"namespace {self.namespace}"
        return f"tenant {self.tenant}" if self.tenant else "the broker"


BROKER_ITSELF = Target()
