"""Exports topics from a metadata store and a ledger store to another pair of stores, of the same or another
kind.
"""
