"""Transaction coordinators: they begin and end transactions, and tell topics and subscriptions the
outcome."""
