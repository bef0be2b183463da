"""Schemas of topics: their versions, how these are stored, and which may follow which."""
