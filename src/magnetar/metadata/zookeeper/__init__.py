"""Metadata in Apache ZooKeeper: a client of its protocol, and a ``MetadataStore`` that uses it.

From the bottom up: ``messages`` (serialization, and the records), ``connection`` (one socket),
``session`` (which survives sockets), ``store``.
"""
