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
    "TransactionNotFound",
    "UnknownError",
    "UnsupportedVersionError",
]


class Result(OfficialEnum):
    """The result of an operation."""

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
    """The base class; ``str()`` returns what happened."""

    result = Result.UnknownError

    def error(self) -> Result:
        return self.result


class UnknownError(PulsarException):
    result = Result.UnknownError


class InvalidConfiguration(PulsarException):
    result = Result.InvalidConfiguration


class Timeout(PulsarException):
    result = Result.Timeout


class LookupError(PulsarException):
    result = Result.LookupError


class ConnectError(PulsarException):
    result = Result.ConnectError


class ReadError(PulsarException):
    result = Result.ReadError


class AuthenticationError(PulsarException):
    result = Result.AuthenticationError


class AuthorizationError(PulsarException):
    result = Result.AuthorizationError


class ErrorGettingAuthenticationData(PulsarException):
    result = Result.ErrorGettingAuthenticationData


class BrokerMetadataError(PulsarException):
    result = Result.BrokerMetadataError


class BrokerPersistenceError(PulsarException):
    result = Result.BrokerPersistenceError


class ChecksumError(PulsarException):
    result = Result.ChecksumError


class ConsumerBusy(PulsarException):
    result = Result.ConsumerBusy


class NotConnected(PulsarException):
    result = Result.NotConnected


class AlreadyClosed(PulsarException):
    result = Result.AlreadyClosed


class InvalidMessage(PulsarException):
    result = Result.InvalidMessage


class ConsumerNotInitialized(PulsarException):
    result = Result.ConsumerNotInitialized


class ProducerNotInitialized(PulsarException):
    result = Result.ProducerNotInitialized


class ProducerBusy(PulsarException):
    result = Result.ProducerBusy


class TooManyLookupRequestException(PulsarException):
    result = Result.TooManyLookupRequestException


class InvalidTopicName(PulsarException):
    result = Result.InvalidTopicName


class InvalidUrl(PulsarException):
    result = Result.InvalidUrl


class ServiceUnitNotReady(PulsarException):
    result = Result.ServiceUnitNotReady


class OperationNotSupported(PulsarException):
    result = Result.OperationNotSupported


class ProducerBlockedQuotaExceededError(PulsarException):
    result = Result.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(PulsarException):
    result = Result.ProducerBlockedQuotaExceededException


class ProducerQueueIsFull(PulsarException):
    result = Result.ProducerQueueIsFull


class MessageTooBig(PulsarException):
    result = Result.MessageTooBig


class TopicNotFound(PulsarException):
    result = Result.TopicNotFound


class SubscriptionNotFound(PulsarException):
    result = Result.SubscriptionNotFound


class ConsumerNotFound(PulsarException):
    result = Result.ConsumerNotFound


class UnsupportedVersionError(PulsarException):
    result = Result.UnsupportedVersionError


class TopicTerminated(PulsarException):
    result = Result.TopicTerminated


class CryptoError(PulsarException):
    result = Result.CryptoError


class IncompatibleSchema(PulsarException):
    result = Result.IncompatibleSchema


class ConsumerAssignError(PulsarException):
    result = Result.ConsumerAssignError


class CumulativeAcknowledgementNotAllowedError(PulsarException):
    result = Result.CumulativeAcknowledgementNotAllowedError


class TransactionCoordinatorNotFoundError(PulsarException):
    result = Result.TransactionCoordinatorNotFoundError


class InvalidTxnStatusError(PulsarException):
    result = Result.InvalidTxnStatusError


class NotAllowedError(PulsarException):
    result = Result.NotAllowedError


class TransactionConflict(PulsarException):
    result = Result.TransactionConflict


class TransactionNotFound(PulsarException):
    result = Result.TransactionNotFound


class ProducerFenced(PulsarException):
    result = Result.ProducerFenced


class MemoryBufferIsFull(PulsarException):
    result = Result.MemoryBufferIsFull


class Interrupted(PulsarException):
    result = Result.Interrupted


class TlsFailed(ConnectError):
    """The TLS handshake failed, because of a certificate, a name or a version. Retrying does not help."""


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
    """Returns the exception for a ``ServerError`` number; unknown ones become :class:`UnknownError`."""
    if 0 <= code < len(_SERVER_ERRORS):
        return _SERVER_ERRORS[code](text)
    return UnknownError(f"error {code}: {text}")


def is_retryable(error: BaseException) -> bool:
    """Whether a first attempt should be repeated after this error."""
    return isinstance(error, _RETRYABLE) and not isinstance(error, TlsFailed)


def is_fatal(error: BaseException) -> bool:
    """Whether a producer or consumer that worked before fails for good with this error."""
    return not isinstance(error, PulsarException) or isinstance(error, _FATAL)
