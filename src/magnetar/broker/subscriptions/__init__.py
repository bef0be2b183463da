"""Subscriptions: a cursor or none, a dispatcher, and their consumers."""
