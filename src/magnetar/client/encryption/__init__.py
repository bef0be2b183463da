"""Payloads that only holders of a key can read, as Pulsar's clients encrypt them; brokers know nothing of it.

A producer encrypts payloads with AES-256-GCM under a data key of its own, and puts that key, encrypted for
the holder of a private key, into the metadata of each entry. Source: Pulsar's "End-to-end encryption", and
what its clients write.
"""
