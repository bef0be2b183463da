"""Policies: what is set for clusters, tenants, namespaces and topics, and what of it counts for a topic."""
