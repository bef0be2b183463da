"""Ledgers on Apache BookKeeper, from the bytes up.

``digests``, ``frames`` and ``hot_adds`` (the protocol, version 2), ``bookie`` (a socket to a server) and
``bookies`` (which there are); ``ledger_record`` and ``ledgers`` (what the metadata says); ``writer``,
``reader`` and ``recovery``; ``store`` puts them together.

https://bookkeeper.apache.org/docs/development/protocol
"""
