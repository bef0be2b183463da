"""Converts the payloads of messages to Spark columns, and back."""
