"""Dispatchers, one for each subscription type: they choose the consumer of each entry."""
