"""Errors of a broker, and the code and HTTP status with which clients get each error.

Broker code raises these errors. Only the two interfaces to clients translate them: the binary protocol to a
``ServerError`` number, and the HTTP interface to a status. The table :data:`TRANSLATION` contains both.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ServerErrorCode(IntEnum):
    """The error numbers of the binary protocol, which its definition calls ``ServerError``."""

    UNKNOWN = 0
    METADATA = 1
    PERSISTENCE = 2
    AUTHENTICATION = 3
    AUTHORIZATION = 4
    CONSUMER_BUSY = 5
    SERVICE_NOT_READY = 6
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR = 7
    PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION = 8
    CHECKSUM = 9
    UNSUPPORTED_VERSION = 10
    TOPIC_NOT_FOUND = 11
    SUBSCRIPTION_NOT_FOUND = 12
    CONSUMER_NOT_FOUND = 13
    TOO_MANY_REQUESTS = 14
    TOPIC_TERMINATED = 15
    PRODUCER_BUSY = 16
    INVALID_TOPIC_NAME = 17
    INCOMPATIBLE_SCHEMA = 18
    CONSUMER_ASSIGN = 19
    TRANSACTION_COORDINATOR_NOT_FOUND = 20
    INVALID_TXN_STATUS = 21
    NOT_ALLOWED = 22
    TRANSACTION_CONFLICT = 23
    TRANSACTION_NOT_FOUND = 24
    PRODUCER_FENCED = 25


class BrokerError(Exception):
    """An error that is reported to a client; its message gives a reason on which a person can act."""

    @property
    def code(self) -> ServerErrorCode:
        """The ``ServerError`` number that clients of the binary protocol get."""
        return translation_of(self).code

    @property
    def http_status(self) -> int:
        """The status of the HTTP response."""
        return translation_of(self).http_status


class InternalError(BrokerError):
    """A defect of the broker itself; details are in its log."""


class MetadataFailure(BrokerError):
    """The metadata store refused a request or could not answer."""


class PersistenceFailure(BrokerError):
    """A ledger could not be written or read."""


class AuthenticationFailure(BrokerError):
    """The client is not authenticated."""


class AuthorizationFailure(BrokerError):
    """The client is authenticated, but lacks the permission for the request."""


class ConsumerBusy(BrokerError):
    """The subscription has an exclusive consumer or consumers of another type, or a limit of consumers is
    reached.
    """


class ServiceNotReady(BrokerError):
    """The broker cannot serve the topic or the request now; the client looks the topic up again."""


class FeatureDisabled(ServiceNotReady):
    """The broker's settings disable the feature that the request needs."""


class OwnerUnknown(ServiceNotReady):
    """The broker that serves the topic cannot be determined now."""


class ServedElsewhere(ServiceNotReady):
    """Another broker serves the topic: clients look the topic up again, requests of administrators are
    redirected.
    """

    def __init__(
        self,
        reason: str,
        http_url: str | None,
        http_url_tls: str | None = None,
        *,
        authoritative: bool = True,
        without: frozenset[str] = frozenset(),
    ) -> None:
        """Describes the other broker.

        :param http_url: the HTTP address of that broker; None: the broker has no HTTP address
        :param http_url_tls: the HTTPS address of that broker; None: the broker has no HTTPS address
        :param authoritative: whether that broker must serve the request itself, without choosing an owner
        :param without: query parameters to leave out of the redirect, because this broker has applied them
        """
        super().__init__(reason)
        self.http_url = http_url
        self.http_url_tls = http_url_tls
        self.authoritative = authoritative
        self.without = without


class QuotaExceededHold(BrokerError):
    """The backlog quota is exceeded, and the quota's policy makes producers wait."""


class QuotaExceeded(BrokerError):
    """The disk is full, or a backlog quota is exceeded whose policy refuses producers."""


class ChecksumMismatch(BrokerError):
    """An entry's bytes do not match its checksum."""


class UnsupportedVersion(BrokerError):
    """The client uses a protocol version, or asks for a feature, that is not supported."""


class TopicNotFound(BrokerError):
    """The topic does not exist, and the request does not create it."""


class NamespaceNotFound(TopicNotFound):
    """The namespace does not exist."""


class TenantNotFound(NamespaceNotFound):
    """The tenant does not exist."""


class ClusterNotFound(BrokerError):
    """The cluster does not exist."""


class NotFound(BrokerError):
    """The object does not exist. Topics, clusters and subscriptions have classes of their own."""


class SubscriptionNotFound(BrokerError):
    """The subscription does not exist, and the request does not create it."""


class ConsumerNotFound(BrokerError):
    """The connection has no consumer with that id."""


class TooManyRequests(BrokerError):
    """A limit of requests is reached; the client may try again later."""


class EncryptionRequired(BrokerError):
    """The policies require encrypted messages."""


class TopicTerminated(BrokerError):
    """The topic is terminated: it accepts no more messages."""


class TopicMigrated(TopicTerminated):
    """The topic has migrated to another cluster.

    Clients with version 20 of the protocol or later are redirected to that cluster; for older clients the
    topic is terminated.
    """

    def __init__(self, reason: str, url: str, url_tls: str) -> None:
        """:param url: the ``pulsar://`` URL of the other cluster; empty: the cluster has no such URL
        :param url_tls: the ``pulsar+ssl://`` URL of the other cluster; empty: the cluster has no such URL"""
        super().__init__(reason)
        self.url = url
        self.url_tls = url_tls


class ProducerBusy(BrokerError):
    """A producer of that name is connected, another producer has exclusive access, or there are too many
    producers.
    """


class ProducerFenced(BrokerError):
    """Another producer has exclusive access to the topic, or has taken over exclusive access from this
    producer.
    """


class InvalidTopicName(BrokerError):
    """The name is not a valid name of a topic."""


class InvalidName(BrokerError):
    """The name of a tenant, namespace or cluster is not valid."""


class IncompatibleSchema(BrokerError):
    """The schema violates the compatibility strategy."""


class InvalidSchemaData(BrokerError):
    """The declared schema is not valid."""


class ConsumerAssignFailure(BrokerError):
    """Key ranges of Key_Shared consumers overlap or are missing."""


class TransactionCoordinatorNotFound(BrokerError):
    """No transaction coordinator has that id."""


class InvalidTransactionStatus(BrokerError):
    """The state of the transaction does not allow the request."""


class TransactionConflict(BrokerError):
    """The message is already acknowledged, or another open transaction acknowledges it."""


class TransactionNotFound(BrokerError):
    """The transaction does not exist."""


class NotAllowed(BrokerError):
    """Settings, policies or the kind of the topic do not allow the request."""


class AlreadyExists(BrokerError):
    """The object already exists."""


class InUse(BrokerError):
    """The object to be deleted has producers, consumers, subscriptions or children."""


class HasChildren(BrokerError):
    """The object to be deleted contains other objects: a namespace contains topics, for example."""


class Conflict(BrokerError):
    """The operation is not possible for a topic of this kind or in this state."""


class Unprocessable(BrokerError):
    """The request is well-formed, but cannot be carried out."""


class PreconditionFailed(BrokerError):
    """The state of the object, a policy, or a value in the request does not allow the operation."""


class NotInThisCluster(PreconditionFailed):
    """The local cluster is not one of the clusters that serve the namespace."""


class ConcurrentModification(BrokerError):
    """Another request changed the same object at the same time; repeat the request."""


class NotSupported(BrokerError):
    """This release does not support the request, or a setting disables it."""


class InvalidRequest(BrokerError):
    """A value in the request is missing, malformed or out of range."""


class PartitionCountRefused(BrokerError):
    """The number of partitions is outside the limits."""


class PersistentTopicRequired(BrokerError):
    """The operation needs stored messages, which a non-persistent topic does not have."""


class Translation(NamedTuple):
    """The protocol code and HTTP status with which one class of errors is reported."""

    code: ServerErrorCode
    http_status: int


TRANSLATION: dict[type[BrokerError], Translation] = {
    BrokerError: Translation(ServerErrorCode.UNKNOWN, 500),
    InternalError: Translation(ServerErrorCode.UNKNOWN, 500),
    MetadataFailure: Translation(ServerErrorCode.METADATA, 500),
    PersistenceFailure: Translation(ServerErrorCode.PERSISTENCE, 500),
    AuthenticationFailure: Translation(ServerErrorCode.AUTHENTICATION, 401),
    AuthorizationFailure: Translation(ServerErrorCode.AUTHORIZATION, 403),
    ConsumerBusy: Translation(ServerErrorCode.CONSUMER_BUSY, 409),
    ServiceNotReady: Translation(ServerErrorCode.SERVICE_NOT_READY, 503),
    FeatureDisabled: Translation(ServerErrorCode.SERVICE_NOT_READY, 503),
    OwnerUnknown: Translation(ServerErrorCode.SERVICE_NOT_READY, 503),
    ServedElsewhere: Translation(ServerErrorCode.SERVICE_NOT_READY, 503),
    QuotaExceededHold: Translation(ServerErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEEDED_ERROR, 409),
    QuotaExceeded: Translation(ServerErrorCode.PRODUCER_BLOCKED_QUOTA_EXCEEDED_EXCEPTION, 409),
    EncryptionRequired: Translation(ServerErrorCode.METADATA, 412),
    ChecksumMismatch: Translation(ServerErrorCode.CHECKSUM, 400),
    UnsupportedVersion: Translation(ServerErrorCode.UNSUPPORTED_VERSION, 400),
    TopicNotFound: Translation(ServerErrorCode.TOPIC_NOT_FOUND, 404),
    NamespaceNotFound: Translation(ServerErrorCode.TOPIC_NOT_FOUND, 404),
    TenantNotFound: Translation(ServerErrorCode.TOPIC_NOT_FOUND, 404),
    ClusterNotFound: Translation(ServerErrorCode.METADATA, 404),
    NotFound: Translation(ServerErrorCode.METADATA, 404),
    SubscriptionNotFound: Translation(ServerErrorCode.SUBSCRIPTION_NOT_FOUND, 404),
    ConsumerNotFound: Translation(ServerErrorCode.CONSUMER_NOT_FOUND, 404),
    TooManyRequests: Translation(ServerErrorCode.TOO_MANY_REQUESTS, 429),
    TopicTerminated: Translation(ServerErrorCode.TOPIC_TERMINATED, 405),
    ProducerBusy: Translation(ServerErrorCode.PRODUCER_BUSY, 409),
    ProducerFenced: Translation(ServerErrorCode.PRODUCER_FENCED, 409),
    InvalidTopicName: Translation(ServerErrorCode.INVALID_TOPIC_NAME, 412),
    InvalidName: Translation(ServerErrorCode.INVALID_TOPIC_NAME, 412),
    IncompatibleSchema: Translation(ServerErrorCode.INCOMPATIBLE_SCHEMA, 409),
    InvalidSchemaData: Translation(ServerErrorCode.INCOMPATIBLE_SCHEMA, 422),
    ConsumerAssignFailure: Translation(ServerErrorCode.CONSUMER_ASSIGN, 409),
    TransactionCoordinatorNotFound: Translation(ServerErrorCode.TRANSACTION_COORDINATOR_NOT_FOUND, 404),
    InvalidTransactionStatus: Translation(ServerErrorCode.INVALID_TXN_STATUS, 409),
    TransactionConflict: Translation(ServerErrorCode.TRANSACTION_CONFLICT, 409),
    TransactionNotFound: Translation(ServerErrorCode.TRANSACTION_NOT_FOUND, 404),
    NotAllowed: Translation(ServerErrorCode.NOT_ALLOWED, 405),
    AlreadyExists: Translation(ServerErrorCode.UNKNOWN, 409),
    InUse: Translation(ServerErrorCode.CONSUMER_BUSY, 412),
    HasChildren: Translation(ServerErrorCode.NOT_ALLOWED, 409),
    Conflict: Translation(ServerErrorCode.NOT_ALLOWED, 409),
    Unprocessable: Translation(ServerErrorCode.NOT_ALLOWED, 422),
    PreconditionFailed: Translation(ServerErrorCode.NOT_ALLOWED, 412),
    NotInThisCluster: Translation(ServerErrorCode.METADATA, 412),
    ConcurrentModification: Translation(ServerErrorCode.METADATA, 409),
    NotSupported: Translation(ServerErrorCode.NOT_ALLOWED, 501),
    InvalidRequest: Translation(ServerErrorCode.NOT_ALLOWED, 400),
    PartitionCountRefused: Translation(ServerErrorCode.NOT_ALLOWED, 406),
    PersistentTopicRequired: Translation(ServerErrorCode.NOT_ALLOWED, 406),
}


def translation_of(error: BaseException) -> Translation:
    """Returns the code and status for ``error``; those of :class:`InternalError` if ``error`` is not a
    :class:`BrokerError`.
    """
    for kind in type(error).__mro__:
        found = TRANSLATION.get(kind)
        if found is not None:
            return found
    return TRANSLATION[InternalError]
