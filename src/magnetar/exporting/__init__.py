"""Topics go from one pair of a metadata and a ledger store to another one, whatever keeps them."""
