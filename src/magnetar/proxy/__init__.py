"""The proxy, which connects clients with brokers that they cannot reach directly."""
