"""Topics, each with producers, subscriptions and, if persistent, a managed ledger."""
