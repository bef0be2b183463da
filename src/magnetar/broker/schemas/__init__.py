"""Schemas of topics: versions, storage, and the rules that decide which schema may become the next
version."""
