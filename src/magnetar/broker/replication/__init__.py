"""Copies of topics in other clusters: who sends them, where to, and what has arrived there.

`topics` knows which clusters each loaded topic is replicated to, `replicator` and, for non-persistent
topics, `passing_on` send one topic to one cluster through a `remote_producer` there, and `clusters` knows how
clusters are reached; `migration` has clients go to another cluster. What happens to entries on the way is in
`magnetar.protocol.hot_replication`.
See https://pulsar.apache.org/docs/4.0.x/concepts-replication/.
"""
