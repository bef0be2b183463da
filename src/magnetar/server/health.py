"""The health check: publishes a message to a topic, durably, and reads it back."""

from __future__ import annotations

from collections.abc import Callable

from magnetar.broker.service import BrokerService
from magnetar.broker.topics.any_topic import persistent
from magnetar.broker.topics.within import TopicWriter, read_on
from magnetar.errors import MetadataFailure, PersistenceFailure, ServiceNotReady
from magnetar.io.locks import Mutex
from magnetar.io.tasks import TaskScope
from magnetar.io.waiting import finished, nobody_waits
from magnetar.ledger.interface import EntryRun, LedgerError
from magnetar.managed_ledger.errors import ManagedLedgerError
from magnetar.metadata.interface import MetadataError
from magnetar.naming.namespace_name import heartbeat_namespaces
from magnetar.naming.topic_name import Domain, TopicName
from magnetar.protocol.metadata import build_entry
from magnetar.protocol.pulsar_api_pb2 import MessageMetadata

_TOPIC = "healthcheck"
_SECONDS = 58.0
"""Timeout of the check in seconds; slightly less than the timeout of admin clients, so that a client gets the
reason of a failure.
"""


class HealthCheck:
    """The health check. Its topics are in namespaces of this broker, and have no subscriptions, so their
    messages are trimmed.
    """

    def __init__(self, broker: BrokerService, check: Callable[[], None] | None = None) -> None:
        """:param check: raises BrokerError if a store is known to be unavailable; None: no check"""
        self._broker = broker
        self._check = check
        self._mutex = Mutex(broker.io.loop)
        self._tasks = TaskScope(broker.io.loop, "the health check")

    async def run(self, newer_name: bool = False) -> None:
        """Runs the health check.

        :param newer_name: whether to use the health check topic with the newer form of the name
        :raises PersistenceFailure: a message cannot be stored, or is not read back in time
        :raises MetadataFailure: the metadata store does not answer
        :raises BrokerError: the topic cannot be loaded
        """
        if not self._broker.ready:
            raise ServiceNotReady("The broker is stopping")
        if self._check is not None:
            self._check()
        loop = self._broker.io.loop
        going = self._tasks.answer(self._exchange(newer_name))
        going.add_done_callback(nobody_waits)
        try:
            if not await finished(loop, going, lambda end: loop.call_later(_SECONDS, end)):
                raise PersistenceFailure(
                    f"The message of the health check was not delivered within {_SECONDS:.0f} s"
                )
        finally:
            going.cancel()
        try:
            going.result()
        except (LedgerError, ManagedLedgerError) as error:
            raise PersistenceFailure(str(error)) from error
        except MetadataError as error:
            raise MetadataFailure(str(error)) from error

    async def _exchange(self, newer_name: bool) -> None:
        own = self._broker.settings
        namespace = heartbeat_namespaces(own.cluster, own.broker_id)[newer_name]
        name = TopicName(Domain.PERSISTENT, namespace, _TOPIC)
        async with self._mutex:
            topic = persistent(await self._broker.topics.load(name, create=True, awaited=True))
            token = self._broker.io.randomness.token(16).hex()
            metadata = MessageMetadata(
                producer_name=f"healthcheck-{token}",
                sequence_id=0,
                publish_time=self._broker.io.clock.wall_ms(),
            )
            entry = build_entry(metadata, token.encode())
            before = topic.managed_ledger.last_confirmed
            await TopicWriter(topic, metadata.producer_name).append(entry, 0)
            found: list[bytes] = []

            def take(run: EntryRun) -> None:
                found.extend(bytes(run.entry(number)) for number in range(run.count))

            await read_on(topic, before, take)
            if not any(each.endswith(token.encode()) for each in found):
                raise PersistenceFailure(
                    "The message that was read differs from the message that was written"
                )
