"""Policies: what is set for clusters, tenants, namespaces and topics, and what applies to a topic."""
