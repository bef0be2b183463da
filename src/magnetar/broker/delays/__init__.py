"""Entries that wait for their delivery time."""
