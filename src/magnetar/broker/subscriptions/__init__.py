"""Subscriptions: a cursor, unless the topic is non-persistent; a dispatcher; and consumers."""
