"""Transactions as topics and subscriptions see them, and the log that coordinators and subscriptions keep."""
