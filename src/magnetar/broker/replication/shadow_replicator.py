"""Announces the entries of a source topic to a shadow topic: each entry is sent with its position."""

from __future__ import annotations

from magnetar.broker.replication.clusters import Common, RemoteCluster
from magnetar.broker.replication.remote_producer import RemoteProducer
from magnetar.broker.replication.replicator import Replicator
from magnetar.broker.topics.persistent import Topic
from magnetar.client.connection import Connection
from magnetar.client.lookup import Lookup
from magnetar.managed_ledger.cursor import Cursor
from magnetar.naming.replicators import shadow_producer
from magnetar.naming.topic_name import TopicName
from magnetar.protocol.hot_replication import ReplicationRun

_RUNS: dict[str, ReplicationRun] = {}
"""Encoders by the name of the own cluster; each call finishes with the encoder before the next call uses
it."""


class ShadowProducer(RemoteProducer):
    """The producer of a source topic at one of its shadow topics, in the same cluster."""

    def __init__(
        self, common: Common, replicator: Replicator, source: TopicName, shadow: TopicName, prefix: str
    ) -> None:
        super().__init__(common, replicator, shadow, common.settings().cluster, prefix)
        self._producer_name = shadow_producer(prefix, source, shadow)

    @property
    def name(self) -> str:
        return self._producer_name

    @property
    def where(self) -> str:
        return f"shadow topic {self._topic}"

    async def _prepare_there(self, cluster: RemoteCluster, lookup: Lookup) -> None:
        """Checks that the shadow topic exists. Only an operator may create it, because without its source it
        would be an ordinary topic.

        :raises TopicNotFound: the topic does not exist
        """
        await lookup.partitions(str(self._topic.base), makes_topic=False)


class ShadowReplicator(Replicator):
    """The replicator of one loaded topic to one of its shadow topics. It sends all entries, whatever their
    age and origin."""

    def __init__(self, common: Common, topic: Topic, shadow: TopicName, cursor: Cursor) -> None:
        self._shadow = shadow
        local = common.settings().cluster
        if local not in _RUNS:
            _RUNS[local] = ReplicationRun(local.encode(), b"", placed=True)
        self._run = _RUNS[local]
        super().__init__(common, topic, str(shadow), cursor)

    def _producer(self, common: Common) -> RemoteProducer:
        topic = self.topic
        return ShadowProducer(common, self, topic.name, self._shadow, topic.settings.replicator_prefix)

    def _encoding(self, cluster: RemoteCluster) -> ReplicationRun:
        return self._run

    def _confirms_positions(self, connection: Connection) -> bool:
        return False

    def _oldest_ms(self) -> int:
        return 0

    def attached(self) -> None:
        """Sends the last entry again if there is no backlog, because a shadow topic that was just loaded may
        not know that entry."""
        ledger = self.topic.managed_ledger
        if not self.cursor.backlog() and ledger.ledgers.exists(ledger.last_confirmed):
            self.cursor.reset(ledger.last_confirmed)
        super().attached()
