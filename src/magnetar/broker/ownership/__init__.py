"""Ownership: each bundle of a namespace belongs to one broker at a time, and this broker serves the bundle's
topics."""
