"""Ledgers on Apache BookKeeper, implemented from the wire protocol up.

``digests``, ``frames`` and ``hot_adds`` implement version 2 of the protocol, ``bookie`` a connection to a
bookie, and ``bookies`` the known bookies. ``ledger_record`` and ``ledgers`` handle the metadata. ``writer``,
``reader`` and ``recovery`` build on these, and ``store`` combines all of them.
https://bookkeeper.apache.org/docs/development/protocol
"""
