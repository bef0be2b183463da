"""The existing namespaces and topics, and the creation of topics."""
