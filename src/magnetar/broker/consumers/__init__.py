"""Consumers, and the division of keys among them."""
