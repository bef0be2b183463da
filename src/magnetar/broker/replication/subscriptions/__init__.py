"""Replicated subscriptions (PIP-33): clusters exchange the positions of a subscription.

Message ids differ between clusters. A snapshot is a set of positions, one in each cluster, such that
everything up to those positions in the other clusters is, here, at or before the local one. A subscription
that has passed the local position of a snapshot may therefore be moved to the other positions elsewhere.
"""
