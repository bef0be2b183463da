"""The proxy, which connects clients with brokers that the clients cannot reach directly."""
