"""System topics, in which brokers keep their own state."""
