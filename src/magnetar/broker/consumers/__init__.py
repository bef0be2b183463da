"""Consumers, with the unacknowledged messages that each holds, and their permits."""
