"""Consumers, and which of them has which keys."""
