"""Writes rows to topics."""
