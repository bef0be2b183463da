"""Schemas of topics: their versions, where these are stored, and which may follow which."""
