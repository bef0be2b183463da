"""Errors of the client. Names and numbers are those of the official Python client."""

from __future__ import annotations

from magnetar.client.enums import OfficialEnum

__all__ = [
    "AlreadyClosed",
    "AuthenticationError",
    "AuthorizationError",
    "BrokerMetadataError",
    "BrokerPersistenceError",
    "ChecksumError",
    "ConnectError",
    "ConsumerAssignError",
    "ConsumerBusy",
    "ConsumerNotFound",
    "ConsumerNotInitialized",
    "CryptoError",
    "CumulativeAcknowledgementNotAllowedError",
    "ErrorGettingAuthenticationData",
    "IncompatibleSchema",
    "Interrupted",
    "InvalidConfiguration",
    "InvalidMessage",
    "InvalidTopicName",
    "InvalidTxnStatusError",
    "InvalidUrl",
    "LookupError",
    "MemoryBufferIsFull",
    "MessageTooBig",
    "NotAllowedError",
    "NotConnected",
    "OperationNotSupported",
    "ProducerBlockedQuotaExceededError",
    "ProducerBlockedQuotaExceededException",
    "ProducerBusy",
    "ProducerFenced",
    "ProducerNotInitialized",
    "ProducerQueueIsFull",
    "PulsarException",
    "ReadError",
    "Result",
    "ServiceUnitNotReady",
    "SubscriptionNotFound",
    "Timeout",
    "TlsFailed",
    "TooManyLookupRequestException",
    "TopicNotFound",
    "TopicTerminated",
    "TransactionConflict",
    "TransactionCoordinatorNotFoundError",
    "TransactionHasOperationFailed",
    "TransactionNotFound",
    "TransactionOutcomeUnknown",
    "UnknownError",
    "UnsupportedVersionError",
]


class Result(OfficialEnum):
    """The result of an operation: Ok, or an error with the same name as its exception class."""

    Ok = 0
    UnknownError = 1
    InvalidConfiguration = 2
    Timeout = 3
    LookupError = 4
    ConnectError = 5
    ReadError = 6
    AuthenticationError = 7
    AuthorizationError = 8
    ErrorGettingAuthenticationData = 9
    BrokerMetadataError = 10
    BrokerPersistenceError = 11
    ChecksumError = 12
    ConsumerBusy = 13
    NotConnected = 14
    AlreadyClosed = 15
    InvalidMessage = 16
    ConsumerNotInitialized = 17
    ProducerNotInitialized = 18
    ProducerBusy = 19
    TooManyLookupRequestException = 20
    InvalidTopicName = 21
    InvalidUrl = 22
    ServiceUnitNotReady = 23
    OperationNotSupported = 24
    ProducerBlockedQuotaExceededError = 25
    ProducerBlockedQuotaExceededException = 26
    ProducerQueueIsFull = 27
    MessageTooBig = 28
    TopicNotFound = 29
    SubscriptionNotFound = 30
    ConsumerNotFound = 31
    UnsupportedVersionError = 32
    TopicTerminated = 33
    CryptoError = 34
    IncompatibleSchema = 35
    ConsumerAssignError = 36
    CumulativeAcknowledgementNotAllowedError = 37
    TransactionCoordinatorNotFoundError = 38
    InvalidTxnStatusError = 39
    NotAllowedError = 40
    TransactionConflict = 41
    TransactionNotFound = 42
    ProducerFenced = 43
    MemoryBufferIsFull = 44
    Interrupted = 45


class PulsarException(Exception):
    """The base class of the client's errors; ``str()`` returns the description."""

    result = Result.UnknownError

    def error(self) -> Result:
        """The result, as in the official client."""
        return self.result


class UnknownError(PulsarException):
    """Any other error; the text comes from the broker, or describes a defect of the client."""

    result = Result.UnknownError


class InvalidConfiguration(PulsarException):
    """An option is out of range, or contradicts others."""

    result = Result.InvalidConfiguration


class Timeout(PulsarException):
    """No message, receipt or answer arrived in time."""

    result = Result.Timeout


class LookupError(PulsarException):
    """The topic's broker was not found."""

    result = Result.LookupError


class ConnectError(PulsarException):
    """A connection could not be opened, or was lost."""

    result = Result.ConnectError


class ReadError(PulsarException):
    """The broker sent data that violates the protocol."""

    result = Result.ReadError


class AuthenticationError(PulsarException):
    """The credentials are missing, or the broker does not accept them."""

    result = Result.AuthenticationError


class AuthorizationError(PulsarException):
    """The role does not have the required permission."""

    result = Result.AuthorizationError


class ErrorGettingAuthenticationData(PulsarException):
    """The client could not obtain credentials."""

    result = Result.ErrorGettingAuthenticationData


class BrokerMetadataError(PulsarException):
    """The broker cannot access its metadata."""

    result = Result.BrokerMetadataError


class BrokerPersistenceError(PulsarException):
    """The broker cannot access its storage."""

    result = Result.BrokerPersistenceError


class ChecksumError(PulsarException):
    """The checksum of a message is wrong: the message was damaged in transit."""

    result = Result.ChecksumError


class ConsumerBusy(PulsarException):
    """An Exclusive subscription has a consumer, or a limit of consumers is reached."""

    result = Result.ConsumerBusy


class NotConnected(PulsarException):
    """The producer or consumer has no connection at present."""

    result = Result.NotConnected


class AlreadyClosed(PulsarException):
    """The client, producer, consumer or reader is closed."""

    result = Result.AlreadyClosed


class InvalidMessage(PulsarException):
    """Options of a message contradict each other, or a stored message or id cannot be read."""

    result = Result.InvalidMessage


class ConsumerNotInitialized(PulsarException):
    """The consumer is not open; only the official client raises this."""

    result = Result.ConsumerNotInitialized


class ProducerNotInitialized(PulsarException):
    """The producer is not open; only the official client raises this."""

    result = Result.ProducerNotInitialized


class ProducerBusy(PulsarException):
    """A producer with the same name or an exclusive producer is connected, or a limit of producers is
    reached.
    """

    result = Result.ProducerBusy


class TooManyLookupRequestException(PulsarException):
    """The broker has too many lookups in progress."""

    result = Result.TooManyLookupRequestException


class InvalidTopicName(PulsarException):
    """The name of the topic is malformed."""

    result = Result.InvalidTopicName


class InvalidUrl(PulsarException):
    """The service URL is malformed."""

    result = Result.InvalidUrl


class ServiceUnitNotReady(PulsarException):
    """The broker is loading the topic, or the topic is moving to another broker."""

    result = Result.ServiceUnitNotReady


class OperationNotSupported(PulsarException):
    """The object, or the given ``io`` (for example without TLS), does not support the operation."""

    result = Result.OperationNotSupported


class ProducerBlockedQuotaExceededError(PulsarException):
    """The backlog quota is exceeded; try to open the producer again later."""

    result = Result.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(PulsarException):
    """The backlog quota is exceeded; the broker refuses the producer."""

    result = Result.ProducerBlockedQuotaExceededException


class ProducerQueueIsFull(PulsarException):
    """The producer's maximum number of pending messages is reached."""

    result = Result.ProducerQueueIsFull


class MessageTooBig(PulsarException):
    """The message is larger than the broker accepts."""

    result = Result.MessageTooBig


class TopicNotFound(PulsarException):
    """The topic or its namespace does not exist, or the topic has no schema."""

    result = Result.TopicNotFound


class SubscriptionNotFound(PulsarException):
    """The subscription does not exist."""

    result = Result.SubscriptionNotFound


class ConsumerNotFound(PulsarException):
    """The consumer does not exist."""

    result = Result.ConsumerNotFound


class UnsupportedVersionError(PulsarException):
    """The broker does not support the request."""

    result = Result.UnsupportedVersionError


class TopicTerminated(PulsarException):
    """The topic is terminated and accepts no more messages."""

    result = Result.TopicTerminated


class CryptoError(PulsarException):
    """A key for encryption or decryption is missing or unusable."""

    result = Result.CryptoError


class IncompatibleSchema(PulsarException):
    """The schema is not compatible with the schema of the topic."""

    result = Result.IncompatibleSchema


class ConsumerAssignError(PulsarException):
    """The hash ranges of a KeyShared consumer overlap with other ranges, or its policy differs from the
    policy of the other consumers.
    """

    result = Result.ConsumerAssignError


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    """The broker refused a cumulative acknowledgement."""

    result = Result.CumulativeAcknowledgementNotAllowedError


class TransactionCoordinatorNotFoundError(PulsarException):
    """The cluster has no transaction coordinator, or the broker does not own the transaction's
    coordinator.
    """

    result = Result.TransactionCoordinatorNotFoundError


class InvalidTxnStatusError(PulsarException):
    """The transaction is not in the state that the operation requires."""

    result = Result.InvalidTxnStatusError


class NotAllowedError(PulsarException):
    """A policy of the broker forbids the operation."""

    result = Result.NotAllowedError


class TransactionConflict(PulsarException):
    """The message is already acknowledged, or another open transaction has acknowledged it."""

    result = Result.TransactionConflict


class TransactionNotFound(PulsarException):
    """The transaction does not exist, or has ended."""

    result = Result.TransactionNotFound


class ProducerFenced(PulsarException):
    """A newer exclusive producer has replaced the producer."""

    result = Result.ProducerFenced


class MemoryBufferIsFull(PulsarException):
    """The memory limit for pending messages is reached."""

    result = Result.MemoryBufferIsFull


class Interrupted(PulsarException):
    """A message of a transaction was not sent, because the task that sends it was cancelled."""

    result = Result.Interrupted


class TlsFailed(ConnectError):
    """The TLS handshake failed, because of a certificate, a host name or a TLS version. Retrying does not
    help.
    """


class TransactionHasOperationFailed(InvalidTxnStatusError):
    """A message or an acknowledgement of the transaction failed; the transaction was aborted instead of
    committed.
    """


class TransactionOutcomeUnknown(UnknownError):
    """A commit was sent, but no answer arrived: the transaction may or may not be committed."""


_KINDS: dict[Result, type[PulsarException]] = {kind.result: kind for kind in PulsarException.__subclasses__()}

# By the ServerError number of the binary protocol.
_SERVER_ERRORS: tuple[type[PulsarException], ...] = (
    UnknownError,
    BrokerMetadataError,
    BrokerPersistenceError,
    AuthenticationError,
    AuthorizationError,
    ConsumerBusy,
    ServiceUnitNotReady,
    ProducerBlockedQuotaExceededError,
    ProducerBlockedQuotaExceededException,
    ChecksumError,
    UnsupportedVersionError,
    TopicNotFound,
    SubscriptionNotFound,
    ConsumerNotFound,
    TooManyLookupRequestException,
    TopicTerminated,
    ProducerBusy,
    InvalidTopicName,
    IncompatibleSchema,
    ConsumerAssignError,
    TransactionCoordinatorNotFoundError,
    InvalidTxnStatusError,
    NotAllowedError,
    TransactionConflict,
    TransactionNotFound,
    ProducerFenced,
)

# Errors after which the same request may succeed.
_RETRYABLE = (
    Timeout,
    ConnectError,
    ReadError,
    NotConnected,
    ServiceUnitNotReady,
    TooManyLookupRequestException,
    BrokerMetadataError,
    BrokerPersistenceError,
    ProducerBlockedQuotaExceededError,
    UnknownError,
)

# Errors after which no attempt succeeds, even if the producer or consumer worked before.
_FATAL = (
    ProducerFenced,
    TopicTerminated,
    TopicNotFound,
    AuthenticationError,
    AuthorizationError,
    InvalidTopicName,
    NotAllowedError,
    IncompatibleSchema,
    ProducerBlockedQuotaExceededException,
    UnsupportedVersionError,
    AlreadyClosed,
    InvalidConfiguration,
)


def exception_of(result: Result, text: str) -> PulsarException:
    """Returns the exception for a result other than Ok."""
    return _KINDS.get(result, UnknownError)(text)


def server_exception(code: int, text: str) -> PulsarException:
    """Returns the exception for a ``ServerError`` number; unknown numbers become :class:`UnknownError`."""
    if 0 <= code < len(_SERVER_ERRORS):
        return _SERVER_ERRORS[code](text)
    return UnknownError(f"error {code}: {text}")


def is_retryable(error: BaseException) -> bool:
    """Whether it makes sense to retry opening a producer or consumer after this error."""
    return isinstance(error, _RETRYABLE) and not isinstance(error, TlsFailed)


def is_fatal(error: BaseException) -> bool:
    """Whether this error is permanent for an open producer or consumer, which then does not reconnect."""
    return not isinstance(error, PulsarException) or isinstance(error, _FATAL)
