"""Dispatchers, one for each type of subscription: they choose the consumer of each entry."""
