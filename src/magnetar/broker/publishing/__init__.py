"""Producers, and what is looked at before an entry is stored."""
