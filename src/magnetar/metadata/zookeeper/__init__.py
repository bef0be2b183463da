"""Metadata in Apache ZooKeeper: a client of its protocol, and a ``MetadataStore`` on it.

From the bytes up: ``jute`` (how records are written), ``messages`` (which records there are), ``connection``
(one socket), ``session`` (what outlives sockets), ``store``.
"""
