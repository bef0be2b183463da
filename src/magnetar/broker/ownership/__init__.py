"""Which broker serves what: a bundle of a namespace belongs to one broker at a time."""
