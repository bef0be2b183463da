"""The asyncio interface: ``Client`` and the objects that it creates, on the running event loop.

With ``io=`` it uses any other event loop, network and clock, for example simulated ones.
"""

from __future__ import annotations

from magnetar.client import client
from magnetar.client.consumer import Consumer
from magnetar.client.enums import (
    BatchingType,
    CompressionType,
    ConsumerType,
    InitialPosition,
    PartitionsRoutingMode,
    ProducerAccessMode,
    TransactionState,
)
from magnetar.client.exceptions import InvalidConfiguration, PulsarException, Result
from magnetar.client.message import Message, RawEntry
from magnetar.client.message_id import MessageId
from magnetar.client.options import ConsumerOptions, ProducerOptions
from magnetar.client.producer import Producer
from magnetar.client.reader import Reader
from magnetar.client.transactions import Transaction
from magnetar.io.interfaces import ClientIo
from magnetar.io.real import is_running, running_client_io

__all__ = [
    "BatchingType",
    "Client",
    "CompressionType",
    "Consumer",
    "ConsumerOptions",
    "ConsumerType",
    "InitialPosition",
    "Message",
    "MessageId",
    "PartitionsRoutingMode",
    "Producer",
    "ProducerAccessMode",
    "ProducerOptions",
    "PulsarException",
    "RawEntry",
    "Reader",
    "Result",
    "Transaction",
    "TransactionState",
]


def __dir__() -> list[str]:
    return sorted(__all__)


class Client(client.Client):
    """Producers, consumers and readers of one cluster, on the running event loop or on the loop of ``io``.

    :raises RuntimeError: there is neither ``io`` nor a running event loop
    """

    _has_own_io = False

    def _default_io(self) -> ClientIo:
        self._has_own_io = True
        return running_client_io()

    def _check_open(self) -> None:
        super()._check_open()
        if self._has_own_io and not is_running(self._io.loop):
            raise InvalidConfiguration(
                "the client belongs to another event loop; create a client for each loop, or use "
                "the blocking client"
            )
