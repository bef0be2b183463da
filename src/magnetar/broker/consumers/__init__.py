"""Consumers: what each of them holds and may receive."""
