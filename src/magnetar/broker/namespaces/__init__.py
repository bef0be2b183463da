"""Which namespaces and topics there are, and who may make more."""
