"""Periodic work over all topics."""
