"""Ledgers on Apache BookKeeper, from the bytes up.

``digests`` and ``frames`` (the protocol, version 2), ``ledger_record`` (what the metadata says of a ledger),
``bookie`` (one socket to one server).

https://bookkeeper.apache.org/docs/development/protocol
"""
