"""End-to-end encryption of payloads, compatible with Pulsar's clients; brokers are not involved.

A producer encrypts payloads with AES-256-GCM and its own data key. It puts this key, encrypted for the owner
of a private key, into the metadata of each entry. Source: Pulsar's "End-to-end encryption", and the messages
of its clients.
"""
