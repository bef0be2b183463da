"""Replicated subscriptions (PIP-33): clusters exchange the positions of a subscription.

Message ids differ between clusters. A snapshot is a set of positions, one in each cluster. Every message that
is at or before its position in another cluster is at or before the local position in this cluster. So once a
subscription has passed the local position, its cursors in the other clusters may move to the positions of
these clusters.
"""
