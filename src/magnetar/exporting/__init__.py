"""Exports topics from one pair of metadata and ledger stores to another, independent of their kind."""
