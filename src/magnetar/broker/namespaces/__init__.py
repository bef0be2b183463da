"""The namespaces and topics that exist, and the creation of topics."""
