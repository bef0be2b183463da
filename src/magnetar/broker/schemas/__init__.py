"""Schemas of topics: their versions, their storage, and the rules by which one may follow another."""
