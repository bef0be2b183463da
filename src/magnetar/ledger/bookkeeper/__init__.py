"""Ledgers on Apache BookKeeper, from the bytes up.

``digests``, ``frames`` and ``hot_adds`` (the protocol, version 2), ``bookie`` (one socket to one server) and
``bookies`` (which there are); ``ledger_record`` and ``ledgers`` (what the metadata says); ``writer``, ``reader`` and
``recovery``; ``store`` puts them together.

https://bookkeeper.apache.org/docs/development/protocol
"""
