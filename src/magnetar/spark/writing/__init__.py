"""Writes rows as messages to topics."""
