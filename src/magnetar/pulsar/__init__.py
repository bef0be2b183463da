"""The interface of the official Python client (``pulsar-client`` 3.13) on ``magnetar.client``.

Programs for the official client only need another import::

    import magnetar.pulsar as pulsar

    client = pulsar.Client("pulsar://localhost:6650")

:func:`install` registers the package as ``pulsar``, for libraries that import it by that name.
    docs/client/official-names.md lists what is refused or has no effect.
"""

from __future__ import annotations

import sys
from importlib import import_module

from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    RegexSubscriptionMode,
)
from magnetar.client.enums import CryptoFailureAction as ConsumerCryptoFailureAction
from magnetar.client.exceptions import Result
from magnetar.pulsar import exceptions, schema
from magnetar.pulsar.authentication import AthenzAuthentication as AuthenticationAthenz
from magnetar.pulsar.authentication import BasicAuthentication as AuthenticationBasic
from magnetar.pulsar.authentication import Oauth2Authentication as AuthenticationOauth2
from magnetar.pulsar.authentication import PulsarAuthentication as Authentication
from magnetar.pulsar.authentication import TlsAuthentication as AuthenticationTLS
from magnetar.pulsar.authentication import TokenAuthentication as AuthenticationToken
from magnetar.pulsar.client import Client
from magnetar.pulsar.enums import BatchLimits as BatchReceivePolicy
from magnetar.pulsar.enums import DeadLetterPolicyBuilder, LoggerLevel
from magnetar.pulsar.enums import KeySharing as KeySharedMode
from magnetar.pulsar.enums import KeySharingPolicy as KeySharedPolicy
from magnetar.pulsar.exceptions import *  # noqa: F403
from magnetar.pulsar.faces import Consumer, Producer, Reader
from magnetar.pulsar.functions import Context, Function, IdentitySerDe, PickleSerDe, SerDe
from magnetar.pulsar.loggers import ConsoleLogger, FileLogger
from magnetar.pulsar.message import EncryptionContext, EncryptionKey, MessageBatch
from magnetar.pulsar.message import PulsarMessage as Message
from magnetar.pulsar.message import TopicMessageId as MessageId
from magnetar.pulsar.policies import (
    AutoClusterFailover,
    ConsumerBatchReceivePolicy,
    ConsumerDeadLetterPolicy,
    ConsumerKeySharedPolicy,
    ServiceInfo,
    ServiceInfoProvider,
)
from magnetar.pulsar.policies import PemKeyReader as CryptoKeyReader
from magnetar.pulsar.schema import BytesSchema
from magnetar.pulsar.tableview import KeyTable as TableView

__version__ = "3.13.0"
"""The version of the official client that provides this interface."""

__all__ = [
    *exceptions.__all__,
    "Authentication",
    "AuthenticationAthenz",
    "AuthenticationBasic",
    "AuthenticationOauth2",
    "AuthenticationTLS",
    "AuthenticationToken",
    "AutoClusterFailover",
    "BatchReceivePolicy",
    "BatchingType",
    "BytesSchema",
    "Client",
    "CompressionType",
    "ConsoleLogger",
    "Consumer",
    "ConsumerBatchReceivePolicy",
    "ConsumerCryptoFailureAction",
    "ConsumerDeadLetterPolicy",
    "ConsumerKeySharedPolicy",
    "ConsumerType",
    "Context",
    "CryptoKeyReader",
    "DeadLetterPolicyBuilder",
    "EncryptionContext",
    "EncryptionKey",
    "FileLogger",
    "Function",
    "IdentitySerDe",
    "InitialPosition",
    "KeySharedMode",
    "KeySharedPolicy",
    "LoggerLevel",
    "Message",
    "MessageBatch",
    "MessageId",
    "PartitionsRoutingMode",
    "PickleSerDe",
    "Producer",
    "ProducerAccessMode",
    "Reader",
    "RegexSubscriptionMode",
    "Result",
    "SerDe",
    "ServiceInfo",
    "ServiceInfoProvider",
    "TableView",
    "install",
    "schema",
]

_MODULES = {
    "asyncio": "asyncio",
    "exceptions": "exceptions",
    "functions": "functions",
    "functions.context": "functions",
    "functions.function": "functions",
    "functions.serde": "functions",
    "schema": "schema",
    "schema.definition": "schema",
    "schema.schema": "schema.schema",
    "schema.schema_avro": "schema.schema_avro",
    "schema.schema_protobuf": "schema.schema",
    "tableview": "tableview",
}
"""Maps each module of the official client to the module of this package that provides the same names."""


def install() -> None:
    """Registers this package as ``pulsar`` for the rest of the process, so that ``import pulsar`` finds it,
    also in libraries.

    :raises RuntimeError: another package was already imported as ``pulsar``
    """
    own = sys.modules[__name__]
    present = sys.modules.get("pulsar", own)
    if present is not own:
        raise RuntimeError(
            f"pulsar was imported from {getattr(present, '__file__', 'elsewhere')}; "
            "call magnetar.pulsar.install() before anything imports pulsar"
        )
    sys.modules["pulsar"] = own
    for official, here in _MODULES.items():
        sys.modules[f"pulsar.{official}"] = import_module(f"{__name__}.{here}")


def _name_classes() -> None:
    """Gives classes the names that they have in the official client, because error texts and the string forms
    of enumerations contain these names.
    """
    for names in (globals(), vars(schema)):
        for name in names["__all__"]:
            kind = names[name]
            if isinstance(kind, type) and kind.__name__ != name and kind.__module__.startswith(__name__):
                kind.__name__ = kind.__qualname__ = name
                kind.__module__ = names["__name__"]


_name_classes()
