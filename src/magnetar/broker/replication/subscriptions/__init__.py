"""Replicated subscriptions (PIP-33): clusters exchange the positions of a subscription.

Message ids differ between clusters. A snapshot is a set of positions, one in each cluster. Every message at
or before the snapshot's position in another cluster is, in this cluster, at or before the snapshot's local
position. So once a subscription has passed the local position, its cursor in every other cluster may move to
the snapshot's position in that cluster.
"""
