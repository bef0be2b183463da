"""Compaction by key: writing the newest message of each key to a compacted ledger, and reading it."""
