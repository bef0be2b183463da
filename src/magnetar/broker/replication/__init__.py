"""Geo-replication: which topics are replicated to which clusters, by which producers, and how far.

`topics` knows the clusters of each loaded topic, and redirects clients to another cluster.
`replicator` and, for non-persistent topics, `passing_on` send one topic to one cluster, through a
`remote_producer` there. `clusters` knows the addresses of clusters. `magnetar.protocol.hot_replication`
converts the entries.

See https://pulsar.apache.org/docs/4.0.x/concepts-replication/.
"""
