"""Ledgers on model bookies, written, read and recovered by several processes while everything goes wrong."""
