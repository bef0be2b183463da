"""Consumers: the messages that each of them holds, and its permits."""
