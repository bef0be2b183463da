"""The table of endpoints."""
