"""Topics: where producers, subscriptions and a managed ledger meet."""
