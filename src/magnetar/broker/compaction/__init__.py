"""Compaction by key: the newest message of each key, in a ledger of its own, and reading it."""
