"""Delayed delivery: entries that wait for their delivery time."""
