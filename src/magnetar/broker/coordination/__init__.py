"""Transaction coordinators: they begin and end transactions, and tell topics the outcome."""
