"""The proxy connects clients with brokers that they cannot reach directly."""
