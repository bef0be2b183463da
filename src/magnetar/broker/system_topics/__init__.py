"""System topics, in which brokers store their own state."""
