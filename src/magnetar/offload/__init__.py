"""Ledgers in other storage: the formats and stores of Pulsar's tiered storage.

Calls block on the network or on files: they are made on a worker, never in the loop. Nothing here knows
managed ledgers, policies or metadata: the caller records what is offloaded, and when it may be deleted.
"""
