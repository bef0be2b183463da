"""All parts of the administration in one object."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.admin.backlogs import BacklogAdmin
from magnetar.broker.admin.brokers import BrokerAdmin, LoadAdmin
from magnetar.broker.admin.browsing import BrowsingAdmin
from magnetar.broker.admin.bundles import BundleAdmin
from magnetar.broker.admin.clusters import (
    ClusterAdmin,
    NamespaceClusterAdmin,
    ResourceGroupAdmin,
    TenantAdmin,
)
from magnetar.broker.admin.coordinators import CoordinatorAdmin
from magnetar.broker.admin.messages import MessageAdmin, ReadPlanAdmin
from magnetar.broker.admin.namespaces import NamespaceAdmin
from magnetar.broker.admin.packages import PackageAdmin
from magnetar.broker.admin.partitions import PartitionAdmin
from magnetar.broker.admin.placement import BookieAdmin, IsolationAdmin
from magnetar.broker.admin.publishing import PublishingAdmin
from magnetar.broker.admin.schemas import SchemaAdmin
from magnetar.broker.admin.subscriptions import ExplainAdmin, SubscriptionAdmin
from magnetar.broker.admin.topic_policies import TopicPolicyAdmin
from magnetar.broker.admin.topic_transactions import TopicTransactionAdmin
from magnetar.broker.admin.topics import TopicAdmin, TopicListAdmin
from magnetar.broker.service import BrokerService
from magnetar.security.authentication import BROKER, Principal


class Admin:
    """All parts of the administration. Topics are given by their full names
    (``persistent://tenant/namespace/local``, legacy ``persistent://tenant/cluster/namespace/local``, the
    local part decoded), namespaces as ``tenant/namespace`` or ``tenant/cluster/namespace``. Failures are
    raised as a :class:`magnetar.errors.BrokerError`. Dictionaries are JSON objects with Pulsar's field names,
    without null fields.
    """

    brokers: BrokerAdmin
    bookies: BookieAdmin
    clusters: ClusterAdmin
    resource_groups: ResourceGroupAdmin
    bundles: BundleAdmin
    namespaces: NamespaceAdmin
    namespace_clusters: NamespaceClusterAdmin
    topic_lists: TopicListAdmin
    load: LoadAdmin
    isolation: IsolationAdmin
    tenants: TenantAdmin
    partitions: PartitionAdmin
    topics: TopicAdmin
    explaining: ExplainAdmin
    subscriptions: SubscriptionAdmin
    backlogs: BacklogAdmin
    messages: MessageAdmin
    browsing: BrowsingAdmin
    publishing: PublishingAdmin
    topic_policies: TopicPolicyAdmin
    read_plans: ReadPlanAdmin
    schemas: SchemaAdmin
    packages: PackageAdmin
    coordinators: CoordinatorAdmin
    topic_transactions: TopicTransactionAdmin

    def __init__(self, broker: BrokerService, principal: Principal = BROKER) -> None:
        """:param principal: the principal of the client that makes the requests"""
        self._broker = broker
        self.principal = principal
        self.brokers = BrokerAdmin(broker)
        self.bookies = BookieAdmin(broker)
        self.clusters = ClusterAdmin(broker)
        self.resource_groups = ResourceGroupAdmin(broker)
        self.bundles = BundleAdmin(broker)
        self.namespaces = NamespaceAdmin(broker, self.bundles)
        self.namespace_clusters = NamespaceClusterAdmin(broker, self.bundles)
        self.topic_lists = TopicListAdmin(broker, self.bundles)
        self.load = LoadAdmin(broker)
        self.isolation = IsolationAdmin(broker, self.namespaces, self.bundles)
        self.tenants = TenantAdmin(broker, self.namespaces)
        self.partitions = PartitionAdmin(broker)
        self.topics = TopicAdmin(broker, self.partitions)
        self.explaining = ExplainAdmin(broker, self.topics)
        self.subscriptions = SubscriptionAdmin(broker, self.topics)
        self.backlogs = BacklogAdmin(broker, self.topics, self.subscriptions)
        self.messages = MessageAdmin(broker, self.topics)
        self.browsing = BrowsingAdmin(broker, self.topics)
        self.publishing = PublishingAdmin(broker, principal)
        self.topic_policies = TopicPolicyAdmin(broker, self.topics, self.partitions)
        self.read_plans = ReadPlanAdmin(broker, self.topics)
        self.schemas = SchemaAdmin(broker)
        self.packages = PackageAdmin(broker)
        self.topic_transactions = TopicTransactionAdmin(broker, self.topics)
        self.coordinators = CoordinatorAdmin(broker, self.topic_transactions)

    @classmethod
    def part(cls, function: Callable[..., object]) -> str:
        """Returns the name of the attribute whose class has the method ``function``.

        :raises ValueError: ``function`` is not a method of one of the attributes
        """
        owner = function.__qualname__.partition(".")[0]
        for name, kind in cls.__annotations__.items():
            if kind == owner:
                return name
        raise ValueError(f"{function.__qualname__} is not an administrative function of the broker")

    def asked_by(self, principal: Principal) -> Admin:
        """Returns the administration for the requests of another principal, with that principal's
        permissions."""
        return self if principal == self.principal else Admin(self._broker, principal)
