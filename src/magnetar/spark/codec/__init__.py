"""Converts contents of messages to Spark's columns, and back."""
