"""The client library, for all brokers that speak Pulsar's protocol.

The names here are the blocking interface (``magnetar.client.blocking``): an event loop in a background
thread, and methods that wait for it. ``magnetar.client.aio`` has the same names for asyncio. Both use
``magnetar.client.client``, which takes the event loop, clock, randomness and network as arguments. Names
follow the official Python client where it has the same feature.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from magnetar.client import exceptions
from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    CryptoFailureAction,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    ProxyProtocol,
    RegexSubscriptionMode,
    TransactionState,
)
from magnetar.client.exceptions import *  # noqa: F403

if TYPE_CHECKING:
    from magnetar.client.batch_receiving import BatchReceivePolicy
    from magnetar.client.blocking import Client, Consumer, Producer, Reader, TableView
    from magnetar.client.blocking_transactions import Transaction
    from magnetar.client.controlled_failover import ControlledClusterFailover
    from magnetar.client.coordinators import TransactionId
    from magnetar.client.dead_letters import DeadLetterPolicy
    from magnetar.client.encryption.key_readers import CryptoKeyReader
    from magnetar.client.failover import ClusterAddress, ClusterFailover
    from magnetar.client.interceptors import (
        ConsumerEventListener,
        ConsumerInterceptor,
        OutgoingMessage,
        ProducerInterceptor,
        ReaderInterceptor,
    )
    from magnetar.client.message import Message, RawEntry
    from magnetar.client.message_id import MessageId
    from magnetar.client.schema import ProducerSchema, ValueSchema, key_value_schema
    from magnetar.client.timing import RedeliveryBackoff
    from magnetar.security.client_authentication.authentication import (
        Authentication,
        AuthenticationBasic,
        AuthenticationTLS,
        AuthenticationToken,
    )
    from magnetar.security.client_authentication.oauth2 import AuthenticationOauth2

_AUTHENTICATION = {
    "Authentication": "authentication",
    "AuthenticationBasic": "authentication",
    "AuthenticationOauth2": "oauth2",
    "AuthenticationTLS": "authentication",
    "AuthenticationToken": "authentication",
}
_BLOCKING = ("Client", "Consumer", "Producer", "Reader", "TableView")
_MESSAGES = {
    "ClusterFailover": "failover",
    "BatchReceivePolicy": "batch_receiving",
    "ConsumerEventListener": "interceptors",
    "ConsumerInterceptor": "interceptors",
    "ControlledClusterFailover": "controlled_failover",
    "DeadLetterPolicy": "dead_letters",
    "Message": "message",
    "MessageId": "message_id",
    "OutgoingMessage": "interceptors",
    "ProducerInterceptor": "interceptors",
    "ProducerSchema": "schema",
    "ValueSchema": "schema",
    "RawEntry": "message",
    "ReaderInterceptor": "interceptors",
    "RedeliveryBackoff": "timing",
    "ClusterAddress": "failover",
    "Transaction": "blocking_transactions",
    "TransactionId": "coordinators",
    "key_value_schema": "schema",
}

__all__ = [
    *exceptions.__all__,
    "Authentication",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "Client",
    "Consumer",
    "ConsumerEventListener",
    "ConsumerInterceptor",
    "CryptoKeyReader",
    "Message",
    "OutgoingMessage",
    "Producer",
    "ProducerInterceptor",
    "ProducerSchema",
    "RawEntry",
    "Reader",
    "ReaderInterceptor",
    "ClusterAddress",
    "TableView",
    "Transaction",
    "TransactionId",
    "TransactionState",
    "ClusterFailover",
    "ControlledClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "CompressionType",
    "ConsumerType",
    "CryptoFailureAction",
    "DeadLetterPolicy",
    "RedeliveryBackoff",
    "InitialPosition",
    "MessageId",
    "HashingScheme",
    "PartitionsRoutingMode",
    "RegexSubscriptionMode",
    "ProducerAccessMode",
    "ProxyProtocol",
    "ValueSchema",
    "key_value_schema",
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    # Imported late, because simulations and the asyncio interface do not need threads and event loops.
    if name in _BLOCKING:
        from magnetar.client import blocking

        return getattr(blocking, name)
    if name in _AUTHENTICATION:
        return getattr(
            import_module(f"magnetar.security.client_authentication.{_AUTHENTICATION[name]}"), name
        )
    if name == "CryptoKeyReader":
        from magnetar.client.encryption.key_readers import CryptoKeyReader

        return CryptoKeyReader
    if name in _MESSAGES:
        return getattr(import_module(f"magnetar.client.{_MESSAGES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
