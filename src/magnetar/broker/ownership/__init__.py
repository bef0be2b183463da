"""Ownership: each bundle of a namespace belongs to one broker at a time, which serves its topics."""
