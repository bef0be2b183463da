"""Subscriptions. Each has consumers, a dispatcher and, unless the topic is non-persistent, a cursor."""
